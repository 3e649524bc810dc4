"""Types that read a text, or a source and its target: a tokenizer of bytes, and attnviz.attend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel

from attnviz.models.hugging_face.loaded_model import input_names, with_boxes
from tests.families.copies import Copy
from tests.families.rows import Reading

TEXT, TARGET = "The red car", "La voiture"
TOKENS, TARGETS = 12, 7  # of an example
LEAST_BYTES = 320  # of a vocabulary that holds every byte beside its special tokens


def example(model: Any) -> dict[str, Any]:
    """Ids of a text."""
    ids = torch.arange(5, 5 + TOKENS)[None]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return with_boxes(inputs, input_names(model))


def pair_example(model: Any) -> dict[str, Any]:
    """Ids of a source and of its target."""
    inputs = example(model)
    return {**inputs, "decoder_input_ids": inputs["input_ids"][:, :TARGETS]}


def save(copy: Copy, folder: Path) -> None:
    """Save a copy with a tokenizer of letters, whose special tokens have the model's numbers."""
    if copy.kind.kind == "pair":
        set_start(copy.config)
    copy.model.save_pretrained(folder)
    letters_of(copy.config).save_pretrained(folder)


def set_start(config: Any) -> None:
    """Say how the decoder starts, which every checkpoint does and some defaults do not."""
    for one in (config, getattr(config, "decoder", None)):
        if one is not None and getattr(one, "decoder_start_token_id", None) is None:
            starts = (getattr(one, f"{name}_token_id", None) for name in ("bos", "pad"))
            one.decoder_start_token_id = next((_first(n) for n in starts if n is not None), 0)
        if one is not None and getattr(one, "pad_token_id", None) is None:
            one.pad_token_id = 0


def letters_of(config: Any) -> Any:
    """A tokenizer of bytes, or of the few letters that a small vocabulary holds."""
    from transformers import PreTrainedTokenizerFast

    text = config.get_text_config()
    sizes = (getattr(text, name, None) for name in ("vocab_size", "text_vocab_size"))
    size = next((one for one in sizes if isinstance(one, int)), 1024)
    named = {f"{name}_token": _first(getattr(text, f"{name}_token_id", None)) for name in NAMES}
    taken = special_ids(config)
    specials: dict[str, int] = {}
    for name, number in named.items():
        if number is not None and 0 <= number < size and number not in specials.values():
            specials[name] = number
    free = [number for number in range(size) if number not in taken | {*specials.values()}]
    if "unk_token" not in specials and free:
        specials["unk_token"] = free.pop(0)
    if "pad_token" not in specials and free:
        specials["pad_token"] = free.pop(0)
    spelt = {SPELT[name]: number for name, number in specials.items()}
    in_bytes = len(free) >= 256
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if in_bytes else [*LETTERS]
    vocabulary = spelt | dict(zip(alphabet, free, strict=False))
    if in_bytes:
        made = Tokenizer(BPE(vocabulary, []))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    else:
        made = Tokenizer(WordLevel(vocabulary, unk_token=SPELT["unk_token"]))
        made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    words = {name: SPELT[name] for name in specials}
    return PreTrainedTokenizerFast(tokenizer_object=made, **words)


NAMES = ("pad", "bos", "eos", "unk", "mask", "sep", "cls")
SPELT = {f"{name}_token": f"<{name}>" for name in NAMES}
LETTERS = " etaoinrsdlchufmTL"  # of a small vocabulary; others are unknown to it


def special_ids(config: Any) -> set[int]:
    """Every number that a configuration, or a part of it, gives to a special token."""
    found = set[int]()

    def look(numbers: Any, name: str) -> None:
        if isinstance(numbers, dict):
            for key, value in numbers.items():
                look(value, str(key))
        elif "token_id" in name and isinstance(numbers, int | list):
            found.update(numbers if isinstance(numbers, list) else [numbers])

    look(config.to_dict(), "")
    return found


def _first(number: Any) -> int | None:
    if isinstance(number, list):
        return _first(number[0]) if number else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def read(copy: Copy, folder: Path) -> Reading:
    """Read the text, or the target over its source, as a user does, and by transformers."""
    from attnviz import attend
    from attnviz.core.query import Query
    from attnviz.models.hugging_face.text_model import load_model

    pair = copy.kind.kind == "pair"
    target = TARGET if pair else None
    result = attend(TEXT, target, model=str(folder), device="cpu")
    query = Query(TEXT, target, "cross" if pair else "self")
    source = load_model(str(folder), device="cpu")
    encoded = source.encode(query)
    return Reading(result, source.tensors(encoded.inputs, encoded.part))
