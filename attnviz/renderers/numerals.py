"""Weights as short numbers: .46, .5, 1.0."""

from __future__ import annotations


def two_digits(weight: float) -> str:
    """Two digits in three columns, four below 0: .46, 1.0, -.20."""
    return _short(f"{weight:.2f}")


def one_digit(weight: float) -> str:
    """One digit in two columns, three below 0: .5, 1., -.2."""
    return _short(f"{weight:.1f}")


def _short(rounded: str) -> str:
    """A rounded number without its leading 0, or from 1 up without its last digit."""
    whole, _, digits = rounded.partition(".")
    if whole.lstrip("-") != "0":
        return rounded[:-1]
    return f"-.{digits}" if whole == "-0" and digits.strip("0") else f".{digits}"
