"""What a reader must know of the maps of a text that are not whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from attnviz.attention_map import Provenance
from attnviz.hugging_face.capture import HANDED_OVER, Captured
from attnviz.hugging_face.exact_links import note_on_links
from attnviz.hugging_face.extent import Frame, note_of


def with_routes(provenance: Provenance, routes: Iterable[str]) -> Provenance:
    """The provenance with how the weights were had, where it named the kernel that was loaded."""
    named = ", ".join(dict.fromkeys(routes))
    return replace(provenance, settings={**provenance.settings, "attention": named})


def notes_of(captured: Sequence[Captured], sides: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """What a reader must know of maps that are not whole; nothing where all of them are."""
    notes = dict[str, None]()
    if any(item.route == HANDED_OVER for item in captured):
        notes["this family attends by hand: its weights are those of a second, eager pass"] = None
    for item in captured:
        if item.queries is not None and item.keys is not None:
            notes[note_of(Frame(item.queries, item.keys), sides[item.stream])] = None
    most = max(
        (len(head) for item in captured for layer in item.links for head in layer), default=0
    )
    if most:
        notes[note_on_links(most)] = None
    return tuple(note for note in notes if note)
