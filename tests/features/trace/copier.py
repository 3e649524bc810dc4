"""A transformer of two layers, made by hand, that copies: what stood behind the same word before.

Its first layer writes each word's predecessor (a head that looks one back), its second finds the
earlier place whose predecessor is this word, and predicts what stands there (an induction head).
"""

import random
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

PLACES, WORDS = 128, 98
NAMES = [f"word{number:03}" for number in range(WORDS)]
SHARP = 40.0


def save_copier(folder: Path) -> Path:
    """GPT-2 with one-hot words and places: every weight is 0 or written here."""
    vocabulary = {name: number for number, name in enumerate(["<end>", ".", *NAMES])}
    made = Tokenizer(WordLevel(vocabulary, unk_token="<end>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")
    words, size = len(vocabulary), 3 * len(vocabulary) + PLACES
    heads = 2
    size += size % heads
    width = size // heads
    assert width >= max(words, PLACES)
    config = transformers.GPT2Config(
        vocab_size=words,
        n_positions=PLACES,
        n_embd=size,
        n_layer=2,
        n_head=heads,
        n_inner=4,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    word = slice(0, words)
    place = slice(words, words + PLACES)
    before = slice(place.stop, place.stop + words)
    copy = slice(before.stop, before.stop + words)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
        stack = model.transformer
        stack.wte.weight[:, word] = torch.eye(words)
        stack.wpe.weight[:, place] = torch.eye(PLACES)
        for layer, (query, key, ranks, target) in enumerate(
            [(place, place, PLACES, before), (word, before, words, copy)]
        ):
            made_of = stack.h[layer].attn
            asked = torch.eye(ranks)
            if layer == 0:  # place n asks for place n - 1
                asked = torch.zeros(PLACES, PLACES)
                asked[range(1, PLACES), range(PLACES - 1)] = 1
            first = slice(0, ranks)  # of the first head; the second looks at all alike
            made_of.c_attn.weight[query, first] = SHARP**0.5 * asked
            made_of.c_attn.weight[key, slice(size, size + ranks)] = SHARP**0.5 * torch.eye(ranks)
            made_of.c_attn.weight[word, slice(2 * size, 2 * size + words)] = torch.eye(words)
            made_of.c_proj.weight[slice(0, words), target] = torch.eye(words)
        model.lm_head.weight[:, copy] = torch.eye(words)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def planted_text(seed: int, sentences: int = 11) -> tuple[str, int]:
    """Sentences of words that occur once, but for pieces of one that others copy; its number."""
    drawn = random.Random(seed)
    fresh = iter(drawn.sample(NAMES, WORDS))
    planted = drawn.randrange(1, 4)
    source = [next(fresh) for _ in range(30)]
    pieces = drawn.sample(range(0, 30, 3), 10)
    lines = list[str]()
    for number in range(sentences):
        own = [next(fresh) for _ in range(6)]
        if number == planted:
            own = source
        elif number > planted:
            start = pieces.pop()  # each once, so that a copy is nobody's source
            own[1:4] = source[start : start + 3]
        lines.append(" ".join(own) + ".")
    return " ".join(lines), planted + 1
