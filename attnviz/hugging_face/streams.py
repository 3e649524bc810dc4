"""Which map a kernel's call belongs to: its stream and its layer, by its module's dotted path.

A module's own idea of its number (`layer_idx`) is missing or wrong in a quarter of the families.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

CROSS = re.compile(r"cross|encoder_attn|EncDec|enc_dec|encdec")
SIDE = re.compile(r"^(?:\w+\.)?(encoder|decoder)\.")
TOWERS = {
    "vision": re.compile(r"(^|\.)(vision|visual|image|vpm|img)"),
    "audio": re.compile(r"(^|\.)(audio|speech|sound)"),
    "text": re.compile(r"(^|\.)text"),
}
"""What the parts of a model of several inputs are called, each with an attention of its own."""


def stream_of(path: str) -> str:
    """The stream of an attention module: "cross", a tower's name, "encoder", "decoder" or "self".

    Args:
        path: its name among a model's `named_modules`.
    """
    if any(CROSS.search(part) for part in path.split(".")[-3:]):
        return "cross"
    for name, pattern in TOWERS.items():
        if pattern.search(path):
            return name
    side = SIDE.match(path)
    return side[1] if side else "self"


def layer_names(paths: Sequence[str], attending: Sequence[int] = ()) -> list[str]:
    """A number for each call of one stream, in the order of the calls.

    It is the first number of the path in which all calls differ, so that a model with other
    layers in between keeps the true ones. Where none is (a module that is called once for each
    layer, as in ALBERT; stages of blocks, as in Swin), it is counted.

    Args:
        paths: of the modules called.
        attending: the layers of the model that have attention, where it says so.
    """
    numbers = [re.findall(r"(?<=\.)\d+(?=\.)", f".{path}.") for path in paths]
    for column in zip(*numbers, strict=False):
        if len(set(column)) == len(column):
            return list(column)
    if len(attending) == len(paths):
        return [str(number) for number in attending]
    return [str(place) for place in range(len(paths))]


def take(stream: str, wanted: Collection[str]) -> str | None:
    """The stream wanted that an attention module's belongs to; None where it is not wanted.

    Towers aside, a model of one stack has one stream, whatever its parts are called.
    """
    if stream in wanted:
        return stream
    alone = [name for name in wanted if name != "cross"]
    others = {"self", "encoder", "decoder", "text"} - (
        {"decoder"} if "encoder" in wanted else set()
    )
    return alone[0] if len(alone) == 1 and stream in others else None
