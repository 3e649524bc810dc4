"""A sub-word tokenizer learned from the training text (byte-pair encoding, Sennrich 2016)."""

from __future__ import annotations

import json

from attnviz.models.pocket.text import SPECIALS

ENTRIES = 8000
REWRITES = (("\u2019", "'"), ("\u00ad", ""), ("\u200b", ""))
"""What the training text writes one way only; NFKC turns its odd spaces into plain ones."""


def learn_pieces(texts: list[str], entries: int = ENTRIES) -> str:
    """A tokenizer's JSON document: both languages in one vocabulary, common words whole.

    Args:
        texts: sentences of both languages.
        entries: pieces in the vocabulary, special ones included.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=SPECIALS[1]))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        special_tokens=list(SPECIALS),
        initial_alphabet=[".", ","],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    document: str = tokenizer.to_str()
    return document


def with_rewrites(document: str) -> str:
    """A tokenizer's JSON with the rewrites put before its normaliser, as small as it gets."""
    content = json.loads(document)
    steps = [
        {"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in REWRITES
    ]
    content["normalizer"] = {"type": "Sequence", "normalizers": [*steps, {"type": "NFKC"}]}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
