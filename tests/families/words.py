"""A tokenizer of bytes for a processor, with every special token that its class names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

NAMES = ("pad", "bos", "eos", "unk", "mask", "sep", "cls")
MARK = re.compile(r"[\"'](<[^<>\s\"']{1,40}>|\[[A-Z_]{2,20}\]|<\|[^<>\s\"']{1,40}\|>)[\"']")
"""How a special token is written in a file of transformers."""
LEAST = 256 + 32  # of a vocabulary that holds every byte beside its special tokens


def marks_of(kind: type) -> list[str]:
    """The special tokens that the file of a class names."""
    source = Path(inspect.getfile(kind)).read_text(encoding="utf-8")
    return list(dict.fromkeys(MARK.findall(source)))


def make_tokenizer(marks: list[str], named: Mapping[str, str]) -> Any:
    """A tokenizer of bytes: the usual special tokens, further marks, marks with a name, bytes."""
    from transformers import PreTrainedTokenizerFast

    usual = {f"{name}_token": f"<{name}>" for name in NAMES}
    every = [*usual.values(), *marks, *named.values()]
    spelt = list(dict.fromkeys([*every, *sorted(pre_tokenizers.ByteLevel.alphabet())]))
    made = Tokenizer(BPE({one: number for number, one in enumerate(spelt)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    others = [one for one in dict.fromkeys(marks) if one not in usual.values()]
    made.add_special_tokens([*dict.fromkeys(every)])
    more: dict[str, Any] = {"extra_special_tokens": dict(named)} if named else {}
    if others and not named:
        more = {"extra_special_tokens": others}
    return PreTrainedTokenizerFast(tokenizer_object=made, **usual, **more)


def fit_ids(config: Any, processor: Any) -> None:
    """Give a configuration the numbers of its special tokens, by their names."""
    taken: set[int] = set()
    for one in parts_of(config):
        for name, value in [*vars(one).items()]:
            if not ID.search(name) or not isinstance(value, int | list) or isinstance(value, bool):
                continue
            number = number_of(name, processor)
            first = value[0] if isinstance(value, list) and value else value
            if number is None and isinstance(first, int) and first >= 0:
                number = free_number(words_of(processor).get_vocab(), taken)
            if number is not None:
                taken.add(number)
                setattr(one, name, [number] if isinstance(value, list) else number)


def parts_of(config: Any) -> list[Any]:
    """A configuration and those inside it."""
    inside = [one for one in vars(config).values() if hasattr(one, "model_type")]
    return [config, *(part for one in inside for part in parts_of(one))]


def words_of(processor: Any) -> Any:
    """The tokenizer of a processor, which may be one itself."""
    return getattr(processor, "tokenizer", processor)


def number_of(name: str, processor: Any) -> int | None:
    """The number of the token that a name of a configuration means, None without one."""
    tokenizer = words_of(processor)
    words = tokenizer.get_vocab()
    stem = re.sub(r"_token_(id|index)s?$", "", name)
    for one in (tokenizer, processor):
        own = getattr(one, f"{stem}_token_id", None)
        if isinstance(own, int) and own < len(words):
            return own
        text = getattr(one, f"{stem}_token", None)
        if isinstance(text, str) and text in words:
            return int(words[text])
    like = [one for one in words if len(one) > 2 and _letters(one) == _letters(stem)]
    return int(words[like[0]]) if like else None


ID = re.compile(r"_token_(id|index)s?$")


def free_number(words: Mapping[str, int], taken: set[int]) -> int:
    """A byte's number that no text of the trials holds."""
    return next(n for n in range(len(words) - 1, 0, -1) if n not in taken)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().replace("_pad", "").replace("_token", ""))
