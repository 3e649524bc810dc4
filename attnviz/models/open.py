"""A request becomes the source that can answer it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attnviz.core import registry
from attnviz.core.errors import UsageError, is_number
from attnviz.core.notices import explain
from attnviz.core.options import InMemoryMaps, InMemoryModel, Origin
from attnviz.models import Source, WithHead
from attnviz.models.fingerprints import FileFingerprint, fingerprint_files

if TYPE_CHECKING:
    from attnviz.models.hugging_face.capture.region import Region

POCKET = "pocket"
SHIPPED = {
    POCKET: ("attnviz.models.pocket.translator:load_pocket", ("causal", "to", "keep_qk")),
    "pocket-lm": (
        "attnviz.features.pocket_lm.language_model:load_pocket_lm",
        ("keep_qk", "generate"),
    ),
    "pocket-vit": ("attnviz.features.vision.pocket_vit:load_pocket_vit", ()),
}
"""The loader of each shipped model, and the fields of an origin that it takes besides device and
dtype. The first is the default for texts."""
LOADING = ("dtype", "allow_pickle", "allow_code", "device_map", "adapter", "tokenizer")
"""The fields of an origin that say how to load a model."""
NO_LIGHT = "--device light cannot do this"


def is_shipped(origin: Origin) -> bool:
    """Whether a shipped model answers, not another model or a file."""
    if origin.model is None:
        return origin.adapter is None and origin.qk is None
    return origin.model in SHIPPED


def load_shipped(origin: Origin, name: str | None = None) -> Any:
    """The shipped model of this name, or of the origin's, with the origin's options."""
    path, names = SHIPPED[name or str(origin.model or POCKET)]
    terms = {term: getattr(origin, term) for term in ("dtype", *names)}
    return registry.Entry("", path).load()(device=origin.processor, **terms)


def origins_of(origin: Origin) -> dict[str, Any]:
    """The options that name where attention comes from, of those that were given."""
    origins = {
        "--model": origin.model,
        "--mechanism": origin.mechanism,
        "--weights": origin.weights,
        "--qk": origin.qk,
    }
    return {option: value for option, value in origins.items() if value is not None}


def check_origin(origin: Origin, command: registry.Command) -> None:
    """Refuse what contradicts itself, before anything is loaded."""
    origins = [*origins_of(origin)]
    if len(origins) > 1:
        raise UsageError(f"{' and '.join(origins)} name two origins of attention: give one")
    if origin.layer is not None:
        from attnviz.models.own import check_mechanism

        check_mechanism(origin.layer.name, command)
    _check_loading(origin, origins)
    if origin.keep_qk and (origin.weights is not None or is_mutual(origin)):
        raise UsageError(
            "--keep-qk keeps queries and keys of a layer or a model, in 'self' and 'cross': it is "
            f"not for {'--weights' if origin.weights is not None else 'co-attention'}"
        )
    _check_extent(origin, command)


def is_mutual(origin: Origin) -> bool:
    """Whether co-attention was asked for."""
    return origin.layer is not None and registry.MECHANISMS[origin.layer.name].mutual


def check_pair(origin: Origin) -> None:
    """Refuse what reads no two texts as one sequence."""
    check_origin(origin, "self")
    if clash := next(iter(origins_of(origin).keys() - {"--model"}), None):
        raise UsageError(f"--pair is read by a model: leave {clash} out")
    if is_shipped(origin):
        raise UsageError("--pair needs a model that reads sentence pairs: --model ID_OR_FOLDER")


def _check_loading(origin: Origin, origins: list[str]) -> None:
    """Refuse Hugging Face options if no such model is opened."""
    uses = {
        "--from": (origin.from_, "is for translators with language codes"),
        "--to": (origins and origin.model != POCKET and origin.to, "is for translators"),
        "--tokenizer": (origin.tokenizer, "is for a Hugging Face model"),
        "--adapter": (origin.adapter, "changes a Hugging Face model"),
        "--device spread": (origin.device_map, "is for large models"),
        f"--device {origin.arithmetic}": (
            origin.arithmetic,
            "is for checkpoints of texts and pictures",
        ),
        "--generate": (
            origin.model != "pocket-lm" and origin.generate,
            "needs a model that writes",
        ),
        "--chat": (origin.chat, "needs a model that writes"),
        "--channels": (origin.channels != "mean", "is for a model without attention"),
    }
    for option, (value, use) in uses.items():
        if value and (
            origin.model in SHIPPED or is_shipped(origin) or origins not in ([], ["--model"])
        ):
            others = origins not in ([], ["--model"])
            advice = f"leave {origins[0]} out" if others else "--model ID_OR_FOLDER"
            raise UsageError(f"{option} {use}: {advice}")


def brings_tokens(origin: Origin) -> bool:
    """Whether a file can name its own tokens, so that no text is needed."""
    return origin.weights is not None or origin.qk is not None


def name_of(origin: Origin) -> str | InMemoryModel:
    if origin.model is not None:
        return origin.model
    from attnviz.models.hugging_face.load.adapters import base_of

    return base_of(str(origin.adapter))


def states_of(origin: Origin) -> dict[str, FileFingerprint]:
    """The size and time of the files that an origin names, by option."""
    files = {"--weights": origin.weights, "--qk": origin.qk}
    states = {
        name: fingerprint_files(sorted(one.rglob("qk.*")) if one.is_dir() else [one])
        for name, one in files.items()
        if isinstance(one, Path)
    }
    if is_shipped(origin) or origin.qk is not None or isinstance(origin.model, InMemoryModel):
        return states
    from attnviz.models.hugging_face.load.locate import loaded_files, locate

    allow_code = origin.allow_code
    folder = locate(str(name_of(origin)), allow_code=allow_code)
    states["--model"] = fingerprint_files(loaded_files(folder, allow_code=allow_code))
    for option, name in (("--adapter", origin.adapter), ("--tokenizer", origin.tokenizer)):
        if isinstance(name, str):
            states[option] = fingerprint_files(loaded_files(locate(name)))
    return states


def find_model(origin: Origin) -> None:
    """Make sure that a model is there and complete, without loading it.

    Raises:
        ModelError: it is not.
    """
    if is_shipped(origin):
        return
    from attnviz.models.hugging_face.load.checkpoint import check_folder
    from attnviz.models.hugging_face.load.locate import locate

    folder = locate(str(name_of(origin)), allow_code=origin.allow_code)
    check_folder(folder, allow_pickle=origin.allow_pickle)


def _check_extent(origin: Origin, command: registry.Command) -> None:
    parts = {"--rows": origin.rows, "--window": origin.window}
    extents = {"--max-size": origin.max_size, **parts}
    if origin.mechanism is not None and (names := [one for one in extents if extents[one]]):
        raise UsageError(f"{names[0]} is for the text of a model: leave --mechanism out")
    if origin.max_size is not None and is_shipped(origin):
        raise UsageError(
            "--max-size is for texts longer than the models inside read: leave it out, or name a "
            "model by --model ID_OR_FOLDER"
        )
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


def open_source(
    origin: Origin, kind: registry.SourceKind, *, with_head: WithHead = False
) -> Source:
    """The source of attention that a request names, loaded and ready, `with_head` to predict too.

    Raises:
        UsageError: options that contradict each other.
        InputError: a file that cannot be used.
        ModelError: a model that cannot be loaded.
    """
    if row := registry.SOURCES.get(kind):
        return cast("Source", row.load()(origin, with_head=with_head))
    command = cast("registry.Command", kind)
    check_origin(origin, command)
    if origin.weights is not None:
        return _open_file(origin, origin.weights)
    if origin.qk is not None:
        return cast("Source", registry.GIVEN.load()(origin, origin.qk, region_of(origin)))
    if origin.mechanism is not None:
        from attnviz.models.own import OwnCoLayer, OwnLayer

        return OwnCoLayer(origin) if is_mutual(origin) else OwnLayer(origin, command)
    if is_shipped(origin):
        source: Any = load_shipped(origin)
        whole = origin.rows is None and origin.window is None
        return cast("Source", source if whole else registry.PART.load()(source, region_of(origin)))
    name = name_of(origin)
    load_whole: Any = partial(_load_by_transformers, origin, with_head=bool(with_head))

    def open_model() -> Any:
        from attnviz.models.hugging_face.light_opening import open_light

        return open_light(origin, str(name), region_of(origin), load_whole, with_head=with_head)

    source = open_in_numpy(origin, name, open_model) or load_whole()
    if origin.causal and source.family != "decoder-only":
        raise UsageError(
            f"--causal changes nothing in '{source.name}' ({source.family}), which reads with its "
            "own mask: leave it out, or name a causal model such as --model pocket-lm"
        )
    return cast("Source", source)


def open_in_numpy(origin: Origin, name: str | InMemoryModel, open_model: Callable[[], Any]) -> Any:
    """A model that numpy can run; None: torch is needed."""
    if isinstance(name, InMemoryModel):
        check_torch(origin, "models in memory")
        return None
    if origin.arithmetic == "torch":
        explain("torch calculates, since --device asks for it")
        return None
    from attnviz.models.light.network import UnknownArchitecture

    try:
        model = open_model()
    except UnknownArchitecture as reason:
        if origin.arithmetic == "light":
            raise UsageError(f"{NO_LIGHT}, since {reason}") from reason
        explain(f"torch calculates, since {reason}")
        return None
    explain(f"numpy calculates: attnviz runs {model.kind} without torch")
    return model


def loading_of(origin: Origin) -> dict[str, Any]:
    """The fields of an origin that `LoadOptions` needs."""
    return {"device": origin.processor, **{term: getattr(origin, term) for term in LOADING}}


def _load_by_transformers(origin: Origin, *, with_head: bool = False) -> Source:
    """A model of texts, loaded by transformers."""
    from attnviz.models.hugging_face.text_model import load_model

    more: dict[str, Any] = {"chat": origin.chat, "with_head": with_head, **loading_of(origin)}
    more["languages"] = origin.from_, origin.to

    def load(name: str | InMemoryModel, **how: Any) -> Any:
        model = load_model(name, generate=origin.generate, **more, **how)
        return replace(model, region=region_of(origin))

    if origin.allow_code or isinstance(origin.model, InMemoryModel):
        open_own_code: Any = None
        with suppress(ModuleNotFoundError):  # a feature, which may not be there
            open_own_code = partial(
                registry.OWN_CODE.load(), with_head=with_head or bool(origin.generate)
            )
        if open_own_code is not None:
            return cast("Source", open_own_code(name_of(origin), load))
    return cast("Source", load(name_of(origin)))


def check_torch(origin: Origin, what: str) -> None:
    """Refuse --device light for what only torch computes."""
    if origin.arithmetic == "light":
        raise UsageError(f"{NO_LIGHT}, since {what} need torch: leave it out")


def region_of(origin: Origin) -> Region:
    """Which part of a long text's attention is asked for, and how finely."""
    from attnviz.models.hugging_face.capture.region import Region

    rows, window = (
        None if part is None else parse_part(part, "") for part in (origin.rows, origin.window)
    )
    more: dict[str, Any] = {
        "links": origin.top,
        "keep_qk": origin.keep_qk,
        "channels": origin.channels,
        "indexer": origin.indexer,
    }
    return Region(origin.max_size, rows, window, **more)


def _open_file(origin: Origin, path: Path | InMemoryMaps) -> Source:
    from attnviz.models.saved import MatrixSource, Results, SavedMaps
    from attnviz.storage.matrices import read_bytes
    from attnviz.storage.saved_maps import holds_attention, read_attention

    if isinstance(path, InMemoryMaps):
        return Results(path.maps)
    data = read_bytes(path)
    if not holds_attention(data):
        return registry.DUMPED.load()(data, path) or MatrixSource(origin, path)
    if origin.causal:
        raise UsageError(f"--causal changes nothing in '{path}': its weights are saved ones")
    return SavedMaps(list(read_attention(data, f"'{path}'")), path)
