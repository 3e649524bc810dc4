"""Values that a default configuration lacks: what has no default, or one that does not build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

VALUES: dict[str, Mapping[str, Any] | Callable[[], Any]] = {}
"""By type: values for its configuration, or a function that makes one."""
