"""The plan of a run: what it writes and where, checked before any work."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from attnviz.cli import destinations
from attnviz.cli.places import Place, check_apart
from attnviz.core.errors import UsageError
from attnviz.core.options import Options
from attnviz.core.options.look import Look
from attnviz.core.records import dataclass
from attnviz.core.registry import ATLAS, FIELDS, FORMATS, DataKind
from attnviz.renderers import DATA_KINDS, PICTURE_SUFFIXES, reports
from attnviz.runs.inputs import PICTURES
from attnviz.storage.writing import check_writable


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run writes and where: nothing is open yet, and nothing has been written.

    Attributes:
        many: whether there may be several results.
        pages: whether each text has a page, though the data of several come together.
        format: what stdout holds.
        formats: what stdout and the data file hold.
        pictures: the file of each picture.
        on_screen: the pictures that are drawn in this terminal.
        command: the command whose run --resume can continue.
        input_file: what texts are read from, if it can be read again.
    """

    options: Options
    kind: DataKind
    many: bool
    format: str
    formats: Collection[str]
    pictures: Mapping[str, Path]
    on_screen: Sequence[str]
    command: str = ""
    input_file: Path | None = None
    pages: bool = False


def plan(
    options: Options,
    kind: DataKind = "maps",
    *,
    many: bool = False,
    command: str = "",
    input_file: Path | None = None,
    pages: bool = False,
) -> Plan:
    """What a run with these options writes; each output has a place of its own.

    Raises:
        UsageError: names, formats or places that cannot be, or cannot go together.
    """
    output, formats = options.output, reports.formats_of(kind)
    name = output.format or next(iter(formats))
    if name not in formats:
        raise UsageError(
            f"format '{name}' cannot hold {DATA_KINDS[kind][0]}: choose from {', '.join(formats)}"
        )
    pictures = {one: path for one, path in options.pictures.items() if path is not None}
    still = [one for one in options.pictures if one != "gif"]
    on_screen = [one for one in still if one in pictures] or still[:1] if output.show else []
    _check_page(options)
    check_look(options.look, has_pictures=bool(pictures or on_screen))
    places = _places(options, kind, pictures, many=many, pages=pages)
    check_apart(places, [value for _, value in options.given])
    if (rejects := options.many.rejects) and rejects.suffix.lower() in OTHERS:
        raise UsageError(f"--on-error '{rejects}' holds JSON lines: end it in .jsonl")
    if not (output.overwrite or options.many.resume):
        for place in places:
            destinations.check_own(place.path, several=place.several)
    if FORMATS[name].binary and sys.stdout.isatty():
        raise UsageError(
            f"format '{name}' is binary and stdout is a terminal: redirect it, or write a file "
            "with -o FILE"
        )
    of_file = [reports.format_of(output.output, kind)] if output.output else []
    both = {name, *of_file}
    _check_cut(options, kind, both, name)
    return Plan(
        options, kind, many, name, both, pictures, on_screen, command, input_file, pages=pages
    )


def _check_cut(options: Options, kind: DataKind, formats: set[str], name: str) -> None:
    """Refuse fields and digits that no format of this run has."""
    output = options.output
    if output.fields is not None and formats.isdisjoint(reports.CUT):
        raise UsageError(f"--fields cuts {', '.join(reports.CUT)}, not {name}: add -f json")
    if output.fields is not None:
        FIELDS.load()(reports.parse_fields(output.fields), kind, formats)
    reports.check_digits(output.digits, formats, kind)


def check_look(look: Look, *, has_pictures: bool) -> None:
    """Refuse options of pictures where none is drawn, and names that matplotlib does not know."""
    if look.flags and not has_pictures:
        raise UsageError(f"{next(iter(look.flags.values()))} is for pictures: name a file for one")
    if look.cmap:
        import attnviz.renderers.figures  # noqa: F401 - first: it loads matplotlib
        from attnviz.renderers.look import color_table

        color_table(look.cmap)


def _check_page(options: Options) -> None:
    """Refuse what only the page shows, where there is none, and an atlas that is none."""
    output = options.output
    if options.origin.keep_qk:
        from attnviz.runs.pipeline import check_kept

        check_kept(options.origin, options.choice)
        if not (output.html or output.open_page):
            raise UsageError("--keep-qk shows on the page only: add --html FILE or --open")
    if output.atlas is not None:
        if output.html is None:
            raise UsageError("--atlas links a page to an atlas: add --html FILE")
        ATLAS.load()(output.atlas)


def _places(
    options: Options, kind: DataKind, pictures: Mapping[str, Path], *, many: bool, pages: bool
) -> list[Place]:
    """Every output file; each can be written, and its suffix names its format."""
    data, page, rejects = options.output.output, options.output.html, options.many.rejects
    for name, path in pictures.items():
        reports.picture_suffix(path, name)
    if data is not None:
        reports.format_of(data, kind)
    if page is not None and page.suffix.lower() not in destinations.PAGES:
        raise UsageError(f"--html '{page}' must end in {' or '.join(destinations.PAGES)}")
    in_shards = many and options.many.shard_size is not None
    each = many or pages
    places = [Place(path, many, many) for path in pictures.values()]
    places += [Place(page, each, each)] if page is not None else []
    places += [
        Place(path, several) for path, several in ((data, in_shards), (rejects, False)) if path
    ]
    for place in places:
        check_writable(place.path)
        if place.several:  # the last of many has the longest name
            check_writable(destinations.numbered_path(place.path, 99_999))
    return places


OTHERS = {
    *(entry.suffix for entry in FORMATS.values() if entry.suffix not in ("", ".txt", ".jsonl")),
    *(*PICTURE_SUFFIXES, *PICTURES, ".html", ".htm"),
}
"""Suffixes that a file of rejects cannot have."""
