"""Runs are seen through Linux's /proc and memfd: elsewhere there is no campaign."""

from __future__ import annotations

import sys

collect_ignore_glob = [] if sys.platform == "linux" else ["*"]
