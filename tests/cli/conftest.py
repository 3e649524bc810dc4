"""What commands draw is looked at elsewhere; here it is written."""

import pytest


@pytest.fixture(autouse=True)
def quick_pictures(coarse: None) -> None:
    """Every picture that a command writes."""
