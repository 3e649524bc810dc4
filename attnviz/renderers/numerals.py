"""Weights as short numbers: .46, .5, 1.0."""

from __future__ import annotations


def two_digits(weight: float) -> str:
    """Two digits in three columns, four below 0: .46, 1.0, -.20."""
    text = f"{weight:.2f}"
    if text == "-0.00":
        return ".00"
    return text.replace("0.", ".", 1) if abs(weight) < 0.995 else text[:-1]


def one_digit(weight: float) -> str:
    """One digit in two columns, three below 0: .5, 1., -.2."""
    text = f"{weight:.1f}"
    if text == "-0.0":
        return ".0"
    return text.replace("0.", ".", 1) if abs(weight) < 0.95 else text[:-1]
