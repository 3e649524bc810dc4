"""A sub-word tokenizer learned from the training text (byte-pair encoding, Sennrich 2016)."""

from __future__ import annotations

from attnviz.models.pocket.text import SPECIALS

ENTRIES = 8000


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
