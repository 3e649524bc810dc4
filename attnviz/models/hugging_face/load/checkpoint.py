"""A model's folder, checked by its files alone, before torch and transformers are imported."""

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Raw, Struct
from msgspec.json import decode

from attnviz.core.errors import ModelError
from attnviz.core.records import dataclass
from attnviz.models.hugging_face.load.locate import WEIGHT_NAMES

POINTER = b"version https://git-lfs"
LONGEST_JSON = 1 << 26  # bytes of a configuration or an index; the largest real ones: 10**5
DEEPEST_JSON = 64  # levels of a configuration; real ones have five
LONGEST_HEADER = 100_000_000  # bytes of a safetensors header, as that library itself allows
TENSOR_BYTES = 100  # the least that a tensor takes in a pickle, with its name and its place
CLAIMS = (
    (re.compile(r"(layers?|blocks?|depths?|stages|group_num|hidden_groups)$"), 100, "tensors"),
    (re.compile(r"(experts|heads?|groups)$"), 1000, "largest"),
    (re.compile(r"labels$"), 1 << 16, "largest"),
    (re.compile(r"positions?(_embeddings)?$"), 1 << 22, "numbers"),
    (re.compile(r"^(?!.*(theta|seed|base|length|index|_ids?$))"), 1 << 24, "numbers"),
)
"""By name: a number of a configuration may be at most this, or what is stored if that is more.

There is no lower bound, since layers may share weights and positions need none. A model that asks
for a little too much is refused when it is built."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that can be loaded, and what its files say."""

    folder: Path
    config: Mapping[str, Any]  # as in its file
    is_pickle: bool  # else the weights are safetensors
    dtypes: tuple[str, ...]  # as safetensors spells them ("F32", "BF16")
    numbers: int  # how many weights are stored; 0: unknown
    files: tuple[Path, ...]  # of the weights


@dataclass(frozen=True, slots=True)
class StoredSize:
    """How much a checkpoint holds; for a pickle, which is not opened, an upper bound."""

    tensors: int
    numbers: int
    largest: int  # axis of a tensor

    def __str__(self) -> str:
        return f"{self.numbers:,} numbers in {self.tensors:,} tensors"


def check_folder(folder: Path, *, allow_pickle: bool = False) -> Checkpoint:
    """A folder's contents; a ModelError unless all files for loading are there and complete."""
    check_entries(folder)
    config = read_config(folder)
    name = next((name for name in WEIGHT_NAMES if (folder / name).is_file()), None)
    if name is None:
        raise ModelError(
            f"'{folder}' holds a configuration but no weights: {list_contents(folder)}"
        )
    is_pickle = not name.startswith("model.safetensors")
    if is_pickle and not allow_pickle:
        raise ModelError(
            f"'{folder}' holds its weights as a pickle ('{name}'), which can hide code: give "
            "--allow pickle if you trust it, or use a model with safetensors"
        )
    files = shard_files(folder / name) if name.endswith(".index.json") else [folder / name]
    try:
        for file in files:
            with file.open("rb") as stream:
                start = stream.read(len(POINTER))
            if not start:
                raise ModelError(f"'{file}' is empty: download it again")
            if start == POINTER:
                raise ModelError(
                    f"'{file}' is a Git LFS pointer, not the weights: run 'git lfs pull'"
                )
        headers = [] if is_pickle else [read_header(file) for file in files]
    except OSError as error:
        raise ModelError(f"the weights in '{folder}' cannot be read: {error.strerror}") from error
    tensors = [tensor for header in headers for tensor in header.values()]
    check_claims(folder, config, _measure_weights(tensors, files))
    return Checkpoint(
        folder,
        config,
        is_pickle,
        tuple(sorted({tensor["dtype"] for tensor in tensors if "F" in tensor["dtype"]})),
        sum(prod(tensor["shape"]) for tensor in tensors),
        tuple(files),
    )


def _measure_weights(tensors: list[dict[str, Any]], files: list[Path]) -> StoredSize:
    if not tensors:
        size = sum(file.stat().st_size for file in files)
        return StoredSize(size // TENSOR_BYTES, size, size)
    shapes = [tensor["shape"] for tensor in tensors if prod(tensor["shape"])]
    largest = max((side for shape in shapes for side in shape), default=1)
    return StoredSize(len(shapes), sum(map(prod, shapes)), largest)


def check_claims(folder: Path, config: Mapping[str, Any], size: StoredSize) -> None:
    """Refuse a configuration that asks for far more than is stored, before anything is built.

    transformers would build a billion layers one by one until the memory ends.
    """
    for name, number in _numbers_in(config):
        for ends, most, measure in CLAIMS:
            if ends.search(name):
                if number > max(most, getattr(size, measure)):
                    raise ModelError(
                        f"'{folder}' does not hold what its configuration asks for: '{name}' is "
                        f"{number:,}, and its weights are {size}"
                    )
                break


def check_sane(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse a configuration with numbers a hundred times larger than in any known model."""
    for name, number in _numbers_in(config):
        most = next((most for ends, most, _ in CLAIMS if ends.search(name)), None)
        if most is not None and number > 100 * most:
            raise ModelError(f"'{path}' is no model's: its '{name}' is {number:,}")


def _numbers_in(config: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """The integers of a configuration, each with the nearest name."""
    if isinstance(config, dict):
        for key, item in config.items():
            yield from _numbers_in(item, key)
    elif isinstance(config, list):
        for item in config:
            yield from _numbers_in(item, name)
    elif isinstance(config, int) and not isinstance(config, bool):
        yield name, config


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(
            f"'{folder}' is not a model's folder, it has no config.json: {suggest_folder(folder)}"
        )
    return read_config_file(path)


def read_config_file(path: Path) -> dict[str, Any]:
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelError(f"'{path}' names no 'model_type', so its architecture is unknown")
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(f"'{path}' says 'architectures' by something else than a list of names")
    for key, kernel in config.items():
        if key.endswith("attn_implementation") and "/" in str(kernel):
            raise ModelError(f"'{path}' asks for a kernel from elsewhere: '{key}' is '{kernel}'")
    return config


def suggest_folder(folder: Path) -> str:
    """What to do if a folder holds no model."""
    if (folder / "adapter_config.json").is_file():
        return f"it holds an adapter only: --adapter {folder}"
    deeper = sorted(path.parent for path in folder.glob("*/config.json"))
    return f"did you mean '{deeper[0]}'?" if deeper else list_contents(folder)


def list_contents(folder: Path) -> str:
    """A folder's first files, in a sentence."""
    names = sorted(path.name for path in folder.iterdir())
    listing = f"it has {', '.join(names[:6])}{', …' if len(names) > 6 else ''}"
    return listing if names else "it is empty"


NO_FILE = "'{}' is a pipe or a device, not a file"
LONGEST_FILE = 1 << 28  # bytes of a vocabulary or another file of JSON; the largest real one: 2**25


def check_entries(folder: Path) -> None:
    """Refuse a folder with a pipe, a device or a huge file of JSON, which fill the memory."""
    for path in folder.iterdir():
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ModelError(NO_FILE.format(path))
        if path.suffix == ".json" and (size := path.stat().st_size) > LONGEST_FILE:
            raise ModelError(f"'{path}' has {size:,} bytes: at most {LONGEST_FILE:,} are read")


def read_json(path: Path) -> Any:
    deep = f"'{path}' is nested deeper than {DEEPEST_JSON} levels: it is no model's"
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ModelError(NO_FILE.format(path))
        if (size := path.stat().st_size) > LONGEST_JSON:
            raise ModelError(
                f"'{path}' has {size:,} bytes, and at most {LONGEST_JSON:,} are read of such a file"
            )
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"'{path}' is not valid JSON: {error}") from error
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise ModelError(deep) from error
    level = [content]
    for _ in range(DEEPEST_JSON):
        nodes = [item for item in level if isinstance(item, dict | list)]
        level = [
            part for item in nodes for part in (item.values() if isinstance(item, dict) else item)
        ]
    if level:
        raise ModelError(deep)
    return content


MOST_GROWTH = 1000  # characters that a tokenizer may make of one; real ones make about 20


class _Pairs(Struct):
    """What byte-pair encoding joins, and the mark of pieces inside a word."""

    continuing_subword_prefix: str | None = None
    merges: Raw = Raw(b"[]")


class _TokenizerFile(Struct):
    """The parts of a tokenizer.json that rewrite text, and its merges."""

    normalizer: Any = None
    decoder: Any = None
    model: Raw = Raw(b"{}")


def check_growth(folder: Path) -> None:
    """Refuse a tokenizer that could fill the memory by replacements, or lets its library panic."""
    check_entries(folder)
    for path in sorted(folder.glob("tokenizer*.json")):
        try:
            file = decode(path.read_bytes(), type=_TokenizerFile)
            growth = max(map(_growth_of, (file.normalizer, file.decoder)))
        except (OSError, ValueError, DecodeError, RecursionError, TypeError, AttributeError):
            continue  # the loader reports a broken file
        if growth > MOST_GROWTH:
            raise ModelError(
                f"'{path}' would make up to {growth:,} characters of one: {MOST_GROWTH:,} are "
                "allowed, no model needs as many"
            )
        if mark := _absent_mark(file.model):
            raise ModelError(
                f"'{path}' says that pieces inside a word begin with '{mark}', and those of its "
                "merges do not: set its continuing_subword_prefix to null"
            )


def _absent_mark(model: Raw) -> str:
    """A mark that merges lack, or "": the library cuts it off all the same, and panics."""
    with suppress(DecodeError, ValueError, TypeError, AttributeError, RecursionError):
        pairs = decode(model, type=_Pairs)
        if mark := pairs.continuing_subword_prefix:
            halves = (one.split() if isinstance(one, str) else one for one in decode(pairs.merges))
            return "" if all(last.startswith(mark) for _, last in halves) else mark
    return ""


def _growth_of(step: Any) -> int:
    """How many characters a normalizer or decoder can make of one, at most."""
    growths = list[tuple[str, int]]()  # what each later step looks for, and how far that grows
    for one in reversed([*_steps_of(step)]):
        put = str(one.get("content") or one.get("prepend") or "")
        if charsmap := one.get("precompiled_charsmap"):  # a trie, then all replacements
            trie = int.from_bytes((data := b64decode(charsmap))[:4], "little")
            put = max(data[4 + trie :].split(b"\0"), key=len).decode("latin-1")
        pattern = one.get("pattern") or {}
        stays = "prepend" in one or _finds_nothing(pattern.get("Regex"))
        # A later step that looks for such characters replaces them again.
        later = (size for text, size in growths if stays or not text or {*text} & {*put})
        growths.append((pattern.get("String") or "", (len(put) + stays) * max([1, *later])))
    return max([1, *(size for _, size in growths)])


def _finds_nothing(regex: str | None) -> bool:
    """Whether a pattern may match between two characters, so that text is only added."""
    if regex is None or "(?" in regex:
        return regex is not None
    try:
        return any(not match[0] for match in re.finditer(regex, "a 1.B\n"))
    except re.error:  # the library's patterns go beyond Python's
        return True


def _steps_of(step: Any) -> Iterator[dict[str, Any]]:
    if step is not None:
        inside = step.get("normalizers") or step.get("decoders")
        yield from (one for part in inside for one in _steps_of(part)) if inside else (step,)


def shard_files(index: Path) -> list[Path]:
    index_file = read_json(index)
    weight_map = index_file.get("weight_map") if isinstance(index_file, dict) else None
    values = weight_map.values() if isinstance(weight_map, dict) else []
    if not all(isinstance(name, str) for name in values):
        raise ModelError(f"'{index}' names files that are no text: download it again")
    names = sorted(set(values))
    for name in names:
        if _lies_outside(index.parent, name):
            raise ModelError(f"'{index}' names a file outside its folder: '{name}'")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing or not names:
        raise ModelError(
            f"'{index.parent}' lacks {len(missing)} of the {len(names)} files with weights that "
            f"its {index.name} names: {', '.join(missing[:3])}"
        )
    return [index.parent / name for name in names]


def _lies_outside(folder: Path, name: str) -> bool:
    """Whether a file is neither in the folder nor among the blobs of its hub cache."""
    if not name.strip() or "\0" in name:
        return True
    around = folder.resolve()
    places = [around]
    if around.parent.name == "snapshots":
        places.append(around.parent.parent / "blobs")
    try:
        file = (folder / name).resolve()
    except (OSError, RuntimeError):  # a loop of links
        return True
    steps_out = Path(name).is_absolute() or ".." in Path(name).parts
    return steps_out or not any(file.is_relative_to(place) for place in places)


def read_header(file: Path) -> dict[str, dict[str, Any]]:
    """The dtype and shape of every tensor in a safetensors file, by name."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        text = stream.read(length) if length < min(size, LONGEST_HEADER) else b""
    try:
        header = {name: item for name, item in json.loads(text).items() if name != "__metadata__"}
        end = 8 + length
        for tensor in header.values():
            first, last = map(int, tensor["data_offsets"])
            shape = [int(side) for side in tensor["shape"]]
            if not 0 <= prod(shape) <= 2 * (last - first):  # a byte holds at most two numbers
                raise ValueError("a shape and its place do not agree")
            end = max(end, 8 + length + last)
            tensor |= {"dtype": str(tensor["dtype"]), "shape": shape}
    except Exception as error:  # the bytes may parse as any JSON, which fails in any way
        raise ModelError(
            f"'{file}' is not a complete safetensors file: download it again"
        ) from error
    if size != end:
        raise ModelError(
            f"'{file}' is damaged: it has {size:,} bytes and not the {end:,} that its header says; "
            "download it again"
        )
    return header
