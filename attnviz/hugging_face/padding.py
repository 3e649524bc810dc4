"""Lists of numbers of several texts become one batch, and a batch's output each text's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnviz.hugging_face.reader import vocabulary_of

MASKS = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}
"""Which input says where the numbers of which other one are no padding."""


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """What a model with a head gave out about one text, as a batch of one."""

    logits: Any


def padded(
    rows: Sequence[Mapping[str, Sequence[int]]], taken: set[str], number: int, device: Any
) -> dict[str, Any]:
    """The inputs of several texts as tensors, padded behind the shorter ones and masked there.

    Texts of one length get what each would get alone, and no mask besides.

    Args:
        rows: lists of numbers by name, of each text.
        taken: the inputs that the model takes.
        number: the padding's.
        device: the model's.
    """
    import torch

    batch = {name: [row[name] for row in rows] for name in rows[0] if name in taken}
    for name, mask in MASKS.items():
        lengths = {len(row) for row in batch.get(name, ())}
        if len(lengths) > 1 and mask not in batch and (mask in taken or name == "input_ids"):
            batch[mask] = [[1] * len(row) for row in batch[name]]
    tensors = {}
    for name, lists in batch.items():
        fill = number if name in MASKS else 0
        array = np.full((len(lists), max(map(len, lists))), fill, dtype=np.int64)
        for line, row in zip(array, lists, strict=True):
            line[: len(row)] = row
        tensors[name] = torch.from_numpy(array).to(device)
    return tensors


def padding_of(model: Any, tokenizer: Any) -> int:
    """The number of a model's padding; 0 where nobody knows of one, which the mask hides too."""
    known = vocabulary_of(model)
    config = model.config.get_text_config()
    named = (getattr(config, "pad_token_id", None), tokenizer.pad_token_id)
    return next((number for number in named if number is not None and 0 <= number < known), 0)


def cut(output: Any, number: int, length: int) -> Output | None:
    """One text's part of what a model gave out about a batch.

    Args:
        output: of the model; None where nobody heard it.
        number: the text's in the batch.
        length: how many tokens it has.
    """
    logits = getattr(output, "logits", None)
    if logits is None:
        return None
    own = logits[number : number + 1]
    return Output(own[:, :length] if own.ndim == 3 else own)
