"""Texts as the unit vectors of late interaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Provenance, Token
from attnviz.core.errors import ModelError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.records import dataclass, replace
from attnviz.features.match.forms import PLAIN, LateForm, SideForm, form_of, projections
from attnviz.models.hugging_face.inputs.tokenization import TokenizedText, tokenize
from attnviz.models.hugging_face.load import devices, imports, loading
from attnviz.models.hugging_face.load.checkpoint import read_config
from attnviz.models.hugging_face.load.family import reading_limit
from attnviz.models.hugging_face.load.locate import locate

NAMED = 8  # tokens that a note names
OF_PAGES = "colpali", "colqwen2", "colmodernvbert"  # whose documents are pictures


@dataclass(frozen=True, slots=True, eq=False)
class EncodedSide:
    """A query or a document: the tokens that count, and a unit vector for each."""

    tokens: tuple[Token, ...]
    vectors: NDArray[np.float32]  # of shape (tokens, size)
    text: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class LateEncoder:
    """A model whose last hidden states, projected, are the vectors of tokens."""

    name: str  # what it was asked for as
    model: Any  # the encoder, on its device, in evaluation mode
    tokenizer: Any
    form: LateForm
    layers: Sequence[Any]  # the projections
    limit: int | None  # most tokens that it reads
    provenance: Provenance

    def encode_query(self, text: str) -> EncodedSide:
        """The vectors of a query; mask tokens that fill it up have some, too."""
        read, notes = self._read(text, self.form.query, "query")
        count, most = len(read.ids), self.form.query.length
        tokens, mask = [*read.tokens], [1] * count
        inputs = {name: [*row] for name, row in read.inputs.items()}
        if self.form.expands and most is not None and count < most:
            number = self._filler
            name = self.tokenizer.convert_ids_to_tokens(number)
            tokens += [Token(name, special=True)] * (most - count)
            mask += [int(self.form.attends)] * (most - count)
            for key, row in inputs.items():
                row += [number if key == "input_ids" else 0] * (most - count)
            notes = (*notes, f"{most - count} {name} fill the query up to {most} tokens, and count")
        vectors = self._vectors({**inputs, "attention_mask": mask})
        return self._compare_only(
            EncodedSide(tuple(tokens), vectors, text, notes), range(len(tokens))
        )

    def encode_document(self, text: str) -> EncodedSide:
        """The vectors of a document, without the words that its form skips."""
        read, notes = self._read(text, self.form.document, "document")
        vectors = self._vectors({**read.inputs, "attention_mask": [1] * len(read.ids)})
        skip_ids = {self.tokenizer.convert_tokens_to_ids(word) for word in self.form.skipped}
        skip_ids -= {self.tokenizer.unk_token_id, None}
        places = [place for place, number in enumerate(read.ids) if number not in skip_ids]
        if off := len(read.ids) - len(places):
            names = [
                *dict.fromkeys(
                    read.tokens[n].text for n in sorted({*range(len(read.ids))} - {*places})
                )
            ]
            names = [*names[:NAMED], *(["…"] if len(names) > NAMED else [])]
            count = f"{off} token{'s' if off > 1 else ''} of the document"
            notes = (*notes, f"the model does not compare {count}: {' '.join(names)}")
        return self._compare_only(EncodedSide(read.tokens, vectors, text, notes), places)

    def _compare_only(self, side: EncodedSide, places: Sequence[int]) -> EncodedSide:
        """The tokens at some places; of a plain encoder without special ones."""
        if not self.form.trained:
            places = [place for place in places if not side.tokens[place].special]
        tokens = tuple(side.tokens[place] for place in places)
        return replace(side, tokens=tokens, vectors=side.vectors[[*places]])

    @property
    def _filler(self) -> int:
        """The token that fills queries up."""
        for name in ("mask_token_id", "eos_token_id", "pad_token_id"):
            if (number := getattr(self.tokenizer, name, None)) is not None:
                return int(number)
        raise ModelError(f"the tokenizer of '{self.name}' has no token that fills a query up")

    def _read(self, text: str, form: SideForm, what: str) -> tuple[TokenizedText, tuple[str, ...]]:
        """The tokens of a text with its marker, cut to what is read of it."""
        read, notes = tokenize(self.tokenizer, text), tuple[str, ...]()
        extra = int(bool(form.marker))
        most = min(n for n in (form.length, self.limit, 1 << 40) if n is not None) - extra
        tokens, ids = [*read.tokens], [*read.ids]
        if (count := len(ids)) > most:
            ending = next((n for n, one in enumerate(reversed(tokens)) if not one.special), 0)
            stay = [*range(most - ending), *range(count - ending, count)]
            tokens, ids = [tokens[n] for n in stay], [ids[n] for n in stay]
            notes = (f"of the {what}'s {count + extra:,} tokens {most + extra:,} are read",)
        if form.marker:
            number = self.tokenizer.convert_tokens_to_ids(form.marker)
            if number is None or number == self.tokenizer.unk_token_id:
                raise ModelError(
                    f"the marker '{form.marker}' of a {what} is no token of the tokenizer of "
                    f"'{self.name}'"
                )
            tokens.insert(1, Token(form.name or form.marker.strip(), special=True))
            ids.insert(1, number)
        return TokenizedText(tuple(tokens), {"input_ids": ids}), notes

    def _vectors(self, inputs: dict[str, list[int]]) -> NDArray[np.float32]:
        import torch

        rows = {name: torch.tensor([row], device=self.model.device) for name, row in inputs.items()}
        with imports.quiet(), devices.running_errors(self.model), torch.no_grad():
            output = self.model(**rows)
        states = getattr(output, "last_hidden_state", None)
        if states is None:
            raise ModelError(f"'{self.name}' gives out no vectors of tokens")
        states = states[0]
        with torch.no_grad(), devices.library_errors(f"the projection of '{self.name}' fails"):
            for layer in self.layers:
                states = layer(states.to(torch.float32))
        states = torch.nn.functional.normalize(states.to(torch.float32), dim=-1)
        vectors: NDArray[np.float32] = states.cpu().numpy()
        return vectors


def load_encoder(name: str | InMemoryModel, **options: Any) -> LateEncoder:
    """A ColBERT-like model, or a plain encoder; options are the fields of `LoadOptions`.

    Raises:
        ModelError: it cannot be loaded, or reads no text.
    """
    terms = loading.LoadOptions(**options)
    if not isinstance(name, InMemoryModel):
        kind = read_config(locate(name, allow_code=terms.allow_code))["model_type"]
        if kind in OF_PAGES:
            raise ModelError(
                f"'{name}' ({kind}) compares a query with pictures of pages, and match reads texts"
            )
    read: Any = partial(loading.load_tokenizer, allow_code=terms.allow_code)
    parts = loading.load_parts(name, terms, read, loading.model_class)
    model, provenance, form, layers = parts.model.base_model, parts.provenance, PLAIN, list[Any]()
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    if parts.model.main_input_name != "input_ids":
        raise ModelError(
            f"'{name}' ({model.config.model_type}) does not read text: it asks for "
            f"'{parts.model.main_input_name}'"
        )
    if not hasattr(parts.reader, "convert_ids_to_tokens"):
        raise UsageError(f"a text needs a tokenizer: a {type(parts.reader).__name__} reads none")
    if not isinstance(name, InMemoryModel):
        folder = Path(locate(name, allow_code=terms.allow_code))
        form = form_of(folder, read_config(folder))
        with imports.quiet():
            layers = projections(folder, form, allow_pickle=terms.allow_pickle)
        layers = [layer.to(model.device).eval() for layer in layers]
    if not form.trained:
        note = (
            f"'{provenance.title}' was not trained for late interaction: its last hidden states "
            "are compared, without special tokens, as BERTScore does"
        )
        provenance = replace(provenance, notes=(*provenance.notes, note))
    limit = reading_limit(parts.model, parts.reader)
    return LateEncoder(str(name), model, parts.reader, form, layers, limit, provenance)
