"""A colour for each role of a head, told apart by the colour-blind too (Okabe and Ito 2008)."""

from __future__ import annotations

from attnviz.renderers.colors import Color

ROLE_COLORS: dict[str, Color] = {
    "previous-token": (0, 114, 178),
    "next-token": (86, 180, 233),
    "self": (68, 68, 68),
    "same-token": (204, 121, 167),
    "first-token": (230, 159, 0),
    "special-token": (213, 94, 0),
    "punctuation": (240, 228, 66),
    "induction": (0, 158, 115),
    "duplicate": (140, 211, 184),
}
UNNAMED: Color = (238, 240, 243)
