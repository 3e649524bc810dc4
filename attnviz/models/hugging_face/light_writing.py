"""How a checkpoint that numpy runs writes: the rules of its files for greedy texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.errors import ModelError
from attnviz.models.hugging_face.load.checkpoint import read_json
from attnviz.models.light.network import UnknownArchitecture

if TYPE_CHECKING:
    from numpy.typing import NDArray

IGNORED = (
    "_from_model_config bos_token_id cache_implementation do_sample early_stopping "
    "length_penalty max_length max_new_tokens num_beams num_return_sequences output_attentions "
    "output_hidden_states pad_token_id return_dict_in_generate temperature top_k top_p "
    "transformers_version use_cache"
)
"""Keys of generation_config.json that change no greedy text."""
NUMBERS = (
    "decoder_start_token_id forced_bos_token_id forced_eos_token_id no_repeat_ngram_size min_length"
)
"""Keys that are read here, besides the tokens that end a text and single tokens that are banned."""


@dataclass(frozen=True, slots=True)
class WritingRules:
    """What changes the likeliest next token."""

    ends: frozenset[int] = frozenset()  # tokens at which a text ends
    banned: tuple[int, ...] = ()
    decoder_start_token_id: int | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    no_repeat_ngram_size: int = 0
    min_length: int = 0

    def choose(self, ids: Sequence[int], scores: NDArray[np.floating], most: int) -> int:
        """The next token after others, of a text with at most so many."""
        forced = self.forced_eos_token_id if len(ids) == most - 1 else None
        if forced is None and len(ids) == 1:
            forced = self.forced_bos_token_id
        if forced is not None:
            return forced
        banned, run = list(self.banned), self.no_repeat_ngram_size
        if run and len(ids) >= run:
            last = list(ids[len(ids) - run + 1 :])
            starts = range(len(ids) - run + 1)
            banned += [ids[n + run - 1] for n in starts if list(ids[n : n + run - 1]) == last]
        if len(ids) < self.min_length:
            banned += self.ends
        scores = scores.copy()
        scores[banned] = -np.inf
        return int(scores.argmax())


def writing_rules(folder: Path, config: Mapping[str, Any], vocabulary: int) -> WritingRules:
    """The rules of a folder, or of its configuration where it has no generation_config.json.

    Raises:
        UnknownArchitecture: transformers may write another text.
    """
    file, read = folder / "generation_config.json", (*NUMBERS.split(), "eos_token_id")
    try:
        given = read_json(file) if file.is_file() else {key: config.get(key) for key in read}
        found: dict[str, Any] = {key: one for key, one in given.items() if one is not None}
        odd = found.keys() - {*IGNORED.split(), *read, "bad_words_ids"}
        ends, banned = found.get("eos_token_id"), found.get("bad_words_ids", [])
        if not file.is_file() and "eos_token_id" not in config:
            raise UnknownArchitecture("its folder does not say how its texts end")
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        single = [one for words in banned for one in words if len(words) == 1]
        numbers = {key: found[key] for key in NUMBERS.split() if key in found}
    except (ModelError, AttributeError, TypeError) as error:
        raise UnknownArchitecture("its folder does not say how its texts end") from error
    whole = all(type(one) is int and one >= 0 for one in (*ends, *single, *numbers.values()))
    tokens = [*ends, *single, *(one for key, one in numbers.items() if key.endswith("token_id"))]
    beyond = whole and max(tokens, default=0) >= vocabulary
    if odd or not whole or beyond or len(single) != len(banned):
        raise UnknownArchitecture("its generation_config.json changes what it writes")
    return WritingRules(frozenset(ends), tuple({*single} - {*ends}), **numbers)
