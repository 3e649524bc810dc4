"""Small models with random weights and small real tokenizers, saved as folders."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE, Unigram, WordPiece
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "The professor who supervised the student published the paper.",
    "The red car is fast, and the blue car is slow.",
    "La voiture rouge est rapide ; le café est fermé.",
    "supervising students, publishing papers, reading and walking",
] * 4

WORDS = ["the", "professor", "who", "student", "published", "paper", "red", "car", "is", "."]
PIECES = ["super", "walk", "##vis", "##ed", "##ing", "##s", "s", "un", "'", "t", "isn"]


def word_pieces() -> Any:
    """BERT's kind: lower case, "##" marks, [CLS] and [SEP] around."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*specials, *WORDS, *PIECES])}
    made = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        model_max_length=32,
    )


def byte_pieces(*, around: bool = False) -> Any:
    """GPT-2's kind: byte-level BPE; with <s> and </s> around it BART's and RoBERTa's."""
    made = Tokenizer(BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    if around:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )


def unigram_pieces() -> Any:
    """T5's kind: unigram pieces with "▁" for a space, </s> at the end."""
    made = Tokenizer(Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )


def save(folder: Path, model: str, tokenizer: Any, config: Any) -> Path:
    """A folder with a model of random weights, wide enough that no two heads agree."""
    torch.manual_seed(0)
    made = getattr(transformers, model)(config)
    with torch.no_grad():
        for weights in made.parameters():
            if weights.ndim > 1:
                weights.normal_(std=0.3)
        if made.main_input_name == "input_ids":
            # Special tokens weigh nothing, so that a model that writes does not write only them.
            made.get_input_embeddings().weight[:3] = 0
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
WIDE = {**SIZES, "intermediate_size": 48}
SEQ2SEQ = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 64,
    "vocab_size": 340,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
}
T5_SIZES = {"d_model": 32, "d_kv": 8, "d_ff": 40}
T5_SIZES |= {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
ENDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


def bert(folder: Path) -> Path:
    config = transformers.BertConfig(vocab_size=26, max_position_embeddings=40, **WIDE)
    return save(folder, "BertModel", word_pieces(), config)


def roberta(folder: Path) -> Path:
    config = transformers.RobertaConfig(vocab_size=340, max_position_embeddings=34, **WIDE, **ENDS)
    return save(folder, "RobertaForMaskedLM", byte_pieces(around=True), config)


def gpt2(folder: Path, positions: int = 64) -> Path:
    config = transformers.GPT2Config(
        vocab_size=340, n_embd=32, n_layer=3, n_head=4, n_positions=positions, **ENDS
    )
    return save(folder, "GPT2LMHeadModel", byte_pieces(), config)


def llama(folder: Path) -> Path:
    return headed(folder, "LlamaForCausalLM")


def gemma2(folder: Path) -> Path:
    config = transformers.Gemma2Config(
        vocab_size=340, num_key_value_heads=2, head_dim=8, sliding_window=4, **WIDE, **ENDS
    )
    return save(folder, "Gemma2ForCausalLM", byte_pieces(), config)


def gpt_oss(folder: Path) -> Path:
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    return small_gpt_oss(folder, sliding_window=4, layer_types=layers)


def small_gpt_oss(folder: Path, **more: Any) -> Path:
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 8}
    sizes = {"vocab_size": 340, "num_key_value_heads": 2, **experts, **WIDE, **ENDS}
    config = transformers.GptOssConfig(**{**sizes, **more})
    return save(folder, "GptOssForCausalLM", byte_pieces(), config)


def mamba(folder: Path) -> Path:
    config = transformers.MambaConfig(
        vocab_size=340, hidden_size=16, num_hidden_layers=2, state_size=4, **ENDS
    )
    return save(folder, "MambaModel", byte_pieces(), config)


def t5(folder: Path) -> Path:
    tokenizer = unigram_pieces()
    more = {"num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
    config = transformers.T5Config(vocab_size=len(tokenizer), **T5_SIZES, **more)
    return save(folder, "T5ForConditionalGeneration", tokenizer, config)


def byt5(folder: Path) -> Path:
    config = transformers.T5Config(vocab_size=384, num_layers=1, num_heads=2, **T5_SIZES)
    return save(folder, "T5ForConditionalGeneration", transformers.ByT5Tokenizer(), config)


def bart(folder: Path) -> Path:
    return headed(folder, "BartForConditionalGeneration")


def marian(folder: Path) -> Path:
    config = transformers.MarianConfig(decoder_start_token_id=1, **SEQ2SEQ)
    return save(folder, "MarianMTModel", byte_pieces(), config)


def m2m_100(folder: Path) -> Path:
    config = transformers.M2M100Config(decoder_start_token_id=2, **SEQ2SEQ)
    return save(folder, "M2M100ForConditionalGeneration", byte_pieces(around=True), config)


def two_models(folder: Path, kind: str, positions: tuple[int, int] = (40, 40)) -> Path:
    """An encoder and a decoder of an encoder's architecture, each with its number of positions."""
    tokenizer = word_pieces() if kind == "Bert" else byte_pieces(around=True)
    start, ends = (2, {}) if kind == "Bert" else (0, ENDS)
    config, same = getattr(transformers, f"{kind}Config"), {"vocab_size": len(tokenizer), **WIDE}
    encoder, decoder = (config(max_position_embeddings=most, **same, **ends) for most in positions)
    both = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    both.decoder_start_token_id, both.pad_token_id = start, tokenizer.pad_token_id
    both.eos_token_id = tokenizer.sep_token_id or tokenizer.eos_token_id
    return save(folder, "EncoderDecoderModel", tokenizer, both)


def both_ends() -> Any:
    return byte_pieces(around=True)


HEADED: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    "Bert": ({"vocab_size": 26, **WIDE}, word_pieces),
    "Electra": ({"vocab_size": 26, **WIDE}, word_pieces),
    "DistilBert": (
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 26},
        word_pieces,
    ),
    "Llama": ({"vocab_size": 340, "num_key_value_heads": 2, **WIDE, **ENDS}, byte_pieces),
    "Bart": ({**SEQ2SEQ, "decoder_start_token_id": 2}, both_ends),
    "T5": (
        {"vocab_size": 340, **T5_SIZES, "num_layers": 2, "num_heads": 4, **ENDS}
        | {"decoder_start_token_id": 2},
        both_ends,
    ),
}
"""Sizes and tokenizers of families with heads."""


def headed(folder: Path, architecture: str, **settings: Any) -> Path:
    """A model with a head, by its class, and further settings."""
    family = architecture.partition("For")[0]
    sizes, tokenizer = HEADED[family]
    config = getattr(transformers, f"{family}Config")(**sizes, **settings)
    return save(folder, architecture, tokenizer(), config)


MADE = (bert, roberta, gpt2, llama, gemma2, gpt_oss, mamba, t5, byt5, bart, marian, m2m_100)
BUILDERS: dict[str, Callable[[Path], Path]] = {made.__name__: made for made in MADE}


def rewrite(path: Path, **changes: Any) -> None:
    """Change entries of a JSON file, which is made if there is none."""
    entries = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(entries | changes))


def reweigh(folder: Path, change: Callable[[str, Any], Any]) -> None:
    """Change each tensor of a checkpoint, given its name; None removes it."""
    file = folder / "model.safetensors"
    made = {name: change(name, one) for name, one in load_file(file).items()}
    kept = {name: one for name, one in made.items() if one is not None}
    save_file(kept, file, metadata={"format": "pt"})


FAST = ("bert", "gpt2", "t5")


def but_slow(kinds: Iterable[Any], fast: tuple[str, ...] = FAST) -> list[Any]:
    """Cases of models, each a kind or beginning with one; others than fast ones in the full tier.

    By default one of each family is fast.
    """
    cases = [case if isinstance(case, tuple) else (case,) for case in kinds]
    return [pytest.param(*case, marks=[pytest.mark.slow] * (case[0] not in fast)) for case in cases]
