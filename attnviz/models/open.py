"""A request becomes the source that can answer it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz.core.errors import UsageError, is_number
from attnviz.core.options import Given, Origin
from attnviz.core.registry import Command, Entry
from attnviz.models import Source

POCKET = "pocket"
SHIPPED = {
    POCKET: ("attnviz.models.pocket:load_pocket", ("causal", "to", "keep_qk")),
    "pocket-lm": ("attnviz.models.pocket_lm.source:load_pocket_lm", ("keep_qk", "generate")),
    "pocket-vit": ("attnviz.models.pocket_vit.source:load_pocket_vit", ()),
}
"""What loads each model that ships with the package, and what of an origin it heeds besides a
device and a precision. Texts are read by the first if no model is named."""
LOADING = ("device", "dtype", "revision", "allow_pickle", "allow_code", "device_map")
"""What of an origin says how a model is loaded."""


def is_shipped(origin: Origin) -> bool:
    """Whether no model of somebody else is asked for."""
    return origin.model is None or origin.model in SHIPPED


def load_shipped(origin: Origin, name: str | None = None) -> Any:
    """The shipped model of that name, or the one that the origin names, as it asks for it."""
    path, heeded = SHIPPED[name or origin.model or POCKET]
    terms = {term: getattr(origin, term) for term in ("device", "dtype", *heeded)}
    return Entry("", path).load()(**terms)


def check_origin(origin: Origin, command: Command) -> None:
    """Refuse what contradicts itself, before anything is loaded."""
    origins = {
        "--model": origin.model,
        "--mechanism": origin.mechanism,
        "--weights": origin.weights,
    }
    named = [option for option, value in origins.items() if value is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} name two origins of attention: give one")
    if origin.mechanism is not None:
        from attnviz.models.own import check_mechanism

        check_mechanism(origin.mechanism, command)
    if origin.mechanism is None and command != "co":
        usual = Origin()
        for name in ("size", "heads", "seed"):
            seeds_inputs = name == "seed" and origin.weights is not None
            if getattr(origin, name) != getattr(usual, name) and not seeds_inputs:
                raise UsageError(f"--{name} is for own layers: add --mechanism NAME")
    if origin.device_map and is_shipped(origin):
        raise UsageError("--device-map is for large models: --model ID_OR_FOLDER")
    generate = origin.generate and origin.model != "pocket-lm"
    if (generate or origin.chat) and is_shipped(origin):
        option = "--generate" if generate else "--chat"
        raise UsageError(f"{option} needs a model that writes: --model ID_OR_FOLDER")
    if origin.keep_qk and (origin.weights is not None or command == "co"):
        raise UsageError(
            "--keep-qk keeps queries and keys of a layer or a model, in 'self' and 'cross': it is "
            f"not for {'--weights' if origin.weights is not None else 'co'}"
        )
    _check_extent(origin, command)
    if command == "co" and named and named != ["--mechanism"]:
        raise UsageError(f"{named[0]} is not for 'co': co-attention runs on an own layer only")


def _check_extent(origin: Origin, command: Command) -> None:
    parts = {"--rows": origin.rows, "--window": origin.window}
    asked = {"--max-size": origin.max_size, **parts}
    given = [option for option, value in asked.items() if value is not None]
    if given and is_shipped(origin):
        raise UsageError(f"{given[0]} is for long texts of a model: --model ID_OR_FOLDER")
    if None not in parts.values():
        raise UsageError("--rows and --window contradict each other: give one")
    for option, part in parts.items():
        if part is not None:
            parse_part(part, option)
            if command != "self":
                raise UsageError(f"{option} is for 'self': a pair has two texts to count tokens in")


def parse_part(text: str, option: str) -> tuple[int, int]:
    """The first and last token that "120-140" names; "120" is one token."""
    first, dash, last = text.partition("-")
    if not is_number(first) or (dash and not (is_number(last) and int(first) <= int(last))):
        raise UsageError(f"{option} '{text}' is no range of tokens: write 120-140, counted from 0")
    return int(first), int(last if dash else first)


def open_source(origin: Origin, command: Command, *, with_head: bool = False) -> Source:
    """The source of attention that a request names, loaded and ready, `with_head` to predict too.

    Raises:
        UsageError: options that contradict each other.
        InputError: a file that cannot be used.
        ModelError: a model that cannot be loaded.
    """
    check_origin(origin, command)
    if command == "co":
        from attnviz.models.own import OwnCoLayer

        return OwnCoLayer(origin)
    if origin.weights is not None:
        return _open_file(origin, origin.weights)
    if origin.mechanism is not None:
        from attnviz.models.own import OwnLayer

        return OwnLayer(origin, command)
    if is_shipped(origin):
        source: Source = load_shipped(origin)
        return source
    from attnviz.models.hugging_face import load_model
    from attnviz.models.hugging_face.capture.region import Region

    terms = (*LOADING, "generate", "chat")
    loading: dict[str, Any] = {name: getattr(origin, name) for name in terms}
    assert origin.model is not None  # it would be the shipped one
    model = load_model(origin.model, **loading, with_head=with_head)
    rows, window = (
        None if part is None else parse_part(part, "") for part in (origin.rows, origin.window)
    )
    region = Region(origin.max_size, rows, window, links=origin.top, keep_qk=origin.keep_qk)
    return replace(model, region=region)


def _open_file(origin: Origin, path: Path | Given) -> Source:
    from attnviz.models.saved import Dumped, Matrices, Results, SavedMaps
    from attnviz.storage.dumps import is_foreign, read_dump
    from attnviz.storage.matrices import read_bytes
    from attnviz.storage.saved import holds_attention, read_attention

    if isinstance(path, Given):
        return Results(path.things)
    data = read_bytes(path)
    if not holds_attention(data):
        if not is_foreign(data):
            return Matrices(origin, path)
        return Dumped(list(read_dump(data, f"'{path}'")), path)
    if origin.causal:
        raise UsageError(f"--causal changes nothing in '{path}': its weights are saved ones")
    return SavedMaps(list(read_attention(data, f"'{path}'")), path)
