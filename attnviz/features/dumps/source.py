"""Maps of another program as a source: its texts in their order."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from attnviz.analyses.words import split_words
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.errors import InputError
from attnviz.core.query import Query
from attnviz.features.dumps.arrays import END, Dump, is_foreign, read_dump
from attnviz.models import Source, check_kind, query_texts, saved


def open_dump(data: bytes, path: Path) -> "DumpedTexts | None":
    """The source of a dump; None where a file holds matrices."""
    return DumpedTexts(list(read_dump(data, f"'{path}'")), path) if is_foreign(data) else None


class DumpedTexts(Source):
    """Texts of a dump in order: the first text given is the first of the file, and so on."""

    def __init__(self, attentions: Sequence[Dump], path: Path) -> None:
        self.attentions = {attention.id: attention for attention in attentions}
        self.path = path
        self.maps_of_file = saved.SavedMaps(attentions, path)
        self.count = 0

    def _attend_one(self, query: Query) -> Attention:
        check_kind(query, "self", "cross")
        if not query.text:
            return self.maps_of_file._attend_one(Query("", None, query.kind))
        if query.kind == "cross" and query.target is None:
            raise InputError(f"'{self.path}' needs both texts: give a target too")
        dump = self.attentions.get(str(self.count))
        self.count += 1
        if dump is None:
            raise InputError(f"'{self.path}' has no attention for text {self.count}")
        keys = split_words(query.text)
        queries = split_words(query.target or "") if query.kind == "cross" else keys
        maps = tuple(
            self._name_tokens(item, queries, keys, may_grow=dump.ends_early) for item in dump.maps
        )
        text, source, target = query_texts(query)
        notes = tuple(note for note in dump.provenance.notes if note not in dump.token_notes)
        provenance = replace(dump.provenance, notes=notes)
        return replace(
            dump, maps=maps, provenance=provenance, text=text, source=source, target=target
        )

    def _name_tokens(
        self, item: AttentionMap, queries: Sequence[Token], keys: Sequence[Token], *, may_grow: bool
    ) -> AttentionMap:
        """The map with words for tokens; zeros follow the last link of a file of links."""
        sides = [
            self._side(words, tokens, may_grow=may_grow)
            for words, tokens in ((queries, item.query_tokens), (keys, item.key_tokens))
        ]
        more = [len(side) - have for side, have in zip(sides, item.weights.shape[2:], strict=True)]
        weights = np.pad(item.weights, ((0, 0), (0, 0), (0, more[0]), (0, more[1])))
        return item.with_weights(weights, query_tokens=sides[0], key_tokens=sides[1])

    def _side(
        self, words: Sequence[Token], tokens: Sequence[Token], *, may_grow: bool
    ) -> tuple[Token, ...]:
        """The words of a side, with an end mark if the file has one more position."""
        if len(tokens) == len(words) + 1:
            end = words[-1].end
            words = (*words, Token(END, end, end, special=True))
        if len(tokens) > len(words) or (len(tokens) < len(words) and not may_grow):
            raise InputError(
                f"'{self.path}' has {len(tokens)} tokens for text {self.count}, "
                f"but there are {len(words)} words: {' '.join(word.text for word in words)[:60]}"
            )
        texts = [token.text for token in tokens]
        numbers = [str(place) for place in range(len(tokens))]
        if texts not in (numbers, [word.text for word in words]):
            raise InputError(f"'{self.path}' holds the attention of other words for this text")
        return tuple(words)
