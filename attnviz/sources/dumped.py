"""Attention that another program saved, played back as a source; texts can name its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from attnviz.analyses.words import split_words
from attnviz.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.errors import InputError
from attnviz.sources.matrices import SavedMaps
from attnviz.storage.dump_alignments import END, LINKS
from attnviz.storage.dump_tensors import NUMBERED


class Dumped:
    """Texts of a dump in order: the first text given is the first of the file, and so on."""

    def __init__(self, attentions: Sequence[Attention], path: Path) -> None:
        self.attentions = {attention.id: attention for attention in attentions}
        self.path = path
        self.saved = SavedMaps(attentions, path)
        self.count = 0

    def attend_self(self, text: str) -> Attention:
        """The next maps of the file over a text's words; an empty text takes the only ones.

        Raises:
            InputError: the file has no such text, or other tokens than it.
        """
        if not text:
            return self.saved.attend_self("")
        words = split_words(text)
        found = self._next()
        maps = tuple(self._named(item, words, words) for item in found.maps)
        return replace(found, maps=maps, text=text, provenance=_without_note(found))

    def attend_cross(self, source: str, target: str | None) -> Attention:
        """The next maps of the file over a pair's words; empty texts take the only ones.

        Raises:
            InputError: the file has no such pair, or other tokens than it.
        """
        if not source:
            return self.saved.attend_cross("", None)
        if target is None:
            raise InputError(f"'{self.path}' needs both texts: give a target too")
        found = self._next()
        queries, keys = split_words(target), split_words(source)
        maps = tuple(self._named(item, queries, keys) for item in found.maps)
        return replace(
            found, maps=maps, source=source, target=target, provenance=_without_note(found)
        )

    def _next(self) -> Attention:
        found = self.attentions.get(str(self.count))
        self.count += 1
        if found is None:
            raise InputError(f"'{self.path}' has no attention for text {self.count}")
        return found

    def _named(
        self, item: AttentionMap, queries: Sequence[Token], keys: Sequence[Token]
    ) -> AttentionMap:
        """The map with words for tokens; links, which end where the last one is, are filled up."""
        sides = [
            self._side(words, tokens, item.unit == LINKS)
            for words, tokens in ((queries, item.query_tokens), (keys, item.key_tokens))
        ]
        grown = [len(side) - have for side, have in zip(sides, item.weights.shape[2:], strict=True)]
        padded = np.pad(item.weights, ((0, 0), (0, 0), (0, grown[0]), (0, grown[1])))
        return item.with_weights(padded, query_tokens=sides[0], key_tokens=sides[1])

    def _side(
        self, words: Sequence[Token], tokens: Sequence[Token], may_grow: bool
    ) -> tuple[Token, ...]:
        """The words, and the end mark where the file has one more position than words."""
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


def _without_note(attention: Attention) -> Provenance:
    """Where it came from, no longer without names."""
    notes = tuple(note for note in attention.provenance.notes if not note.endswith(NUMBERED))
    return replace(attention.provenance, notes=notes)
