"""What a page says, as numbers."""

import csv
import io

import numpy as np

from tests.renderers.page.conftest import Opened

CLOSE = 6e-4
"""Packing, and half a unit of the third digit that is shown."""


def number(text: str) -> float:
    """A weight as the page spells it."""
    return 0.0 if text.startswith("<") else float(text.replace("−", "-"))


def csv_of(opened: Opened) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(opened.download("csv").decode())))


def weights_of(opened: Opened) -> np.ndarray:
    """The matrix that is looked at, from the CSV file that the page saves."""
    rows = csv_of(opened)
    queries = list(dict.fromkeys(row["query_position"] for row in rows))
    return np.array([float(row["weight"]) for row in rows]).reshape(len(queries), -1)


def pointed_at(opened: Opened) -> float:
    return number(opened.text("#readout output"))


def shades(opened: Opened) -> list[float]:
    words = opened.tab.locator(".running .word")
    return [
        number(words.nth(at).get_attribute("aria-description") or "0")
        for at in range(words.count())
    ]
