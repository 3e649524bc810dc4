"""What stands between tokens in running text, from their places in it."""

from __future__ import annotations

from attnviz.attention_map import Token


def gap(before: Token | None, token: Token, text: str | None) -> str:
    """What stands between two tokens in running text: nothing, a space or a line break."""
    if before is None:
        return ""
    if not text or _placeless(before) or _placeless(token):
        return " "
    between = text[before.end : token.start] if before.end <= token.start else ""
    if "\n" in between or "\n" in token.text:
        return "\n"
    starts_blank = text[token.start : token.start + 1].isspace()
    return " " if between or starts_blank else ""


def _placeless(token: Token) -> bool:
    return token.special or token.end <= token.start
