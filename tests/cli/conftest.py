"""What commands draw is looked at elsewhere; here it is written."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_pictures(coarse: None) -> None:
    """Every picture that a command writes."""
