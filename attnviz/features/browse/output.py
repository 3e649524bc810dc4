"""What is seen as files, and as the command that prints it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from attnviz.analyses.select import named_heads
from attnviz.core.options import Choice, Origin
from attnviz.features.browse.state import State
from attnviz.renderers import PICTURE_SUFFIXES
from attnviz.runs.pipeline import apply_choice

COMMANDS = {
    "self": ("self", "--pair"),
    "cross": ("cross", ""),
    "picture": ("image", ""),
    "picture-text": ("image", "--text"),
    "recording": ("audio", "--transcript"),
}
"""The command that prints what a model answers, and its option for the second text."""


def save(state: State, name: str) -> str:
    """Write what is seen: the name's suffix decides how; without one, a picture and data."""
    names = [name] if Path(name).suffix else [f"{name}.png", f"{name}.json"]
    files = [Path(one).expanduser() for one in names]
    item = state.part if state.matrix else state.item
    result = apply_choice(replace(state.seen, maps=(item,)), Choice())
    for file in files:
        if file.suffix.lower() not in PICTURE_SUFFIXES:
            result.save(file)
        elif state.over_picture:
            _save_overlay(state, file)
        else:
            result.picture("heatmap" if state.matrix else "grid", file)
    return f"wrote {' and '.join(map(str, files))}"


def _save_overlay(state: State, file: Path) -> None:
    import attnviz.renderers.figures  # noqa: F401 - first: it loads matplotlib
    from attnviz.features.image.overlay import overlay, picture_crop
    from attnviz.renderers.figures.figure import figure_bytes
    from attnviz.storage.writing import write_file

    item, title = state.item, f"{state.seen.provenance.title} · head {state.name}"
    looks = state.looks(state.layer, state.head, state.query)
    crop = picture_crop(state.pictures.get(item.stream))
    figure = overlay(crop, looks, title=title, unit=item.unit, values=item.values)
    write_file(file, figure_bytes(figure, file.suffix))


def command_of(state: State) -> str:
    """The command that prints this view; empty where there is none."""
    subject, item = state.subject, state.item
    text, words = subject.text, [*subject.saved]
    if words and state.number:
        words += ["--record", text.id]
    elif subject.origin is not None:
        command, flag = COMMANDS[subject.kind]
        second = filter(None, (flag, text.target)) if text.target else ()
        words = [command, text.text, *second, *_options_of(subject.origin)]
    if not words:
        return ""
    layer, _ = item.place(state.layer, state.head)
    of_picture = "picture" in subject.kind  # whose command has fewer options
    many = len(item.heads) * len(item.layers) > 1
    one = bool(named_heads(state.name))  # a lens may have combined heads, or layers too
    query = item.query_tokens[state.query]
    options = {
        "--stream": (item.stream, len(state.seen.maps) > 1 and not of_picture),
        "--lens": (state.lens, state.lens != "raw"),
        "--head": (state.name, many and one),
        "--layer": (layer, many and not one and layer.isdecimal()),
        "--special": ("drop", not state.special),
        "--patch": (query.text, item.query_side == "picture" and not query.special),
    }
    words += [word for name, (value, on) in options.items() if on for word in (name, value)]
    return shlex.join(["attnviz", *words, *(["--words"] * (state.words and not of_picture))])


def _options_of(origin: Origin) -> Iterator[str]:
    """The options of the command line that name an origin."""
    for one in fields(Origin):
        value, names = getattr(origin, one.name), one.metadata["option"].names
        simple = isinstance(value, str | int | float | Path)
        if simple and value != getattr(Origin(), one.name) and one.name not in ("top", "seed"):
            yield from names[:1] if value is True else (names[0], str(value))
