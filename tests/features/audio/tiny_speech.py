"""Small speech models with random weights, saved as folders, and a recording for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.hugging_face.tiny_models import byte_pieces

RATE = 16_000
DEEP = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
LANGUAGES = ("en", "fr")
MARKS = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{name}|>" for name in LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|notimestamps|>",
]


def chirps(seconds: float = 1.5, rate: int = RATE) -> Any:
    """Tones that rise one after the other: no two moments sound alike."""
    time = np.arange(round(seconds * rate)) / rate
    tone = np.sin(2 * np.pi * (300 + 500 * (time % 0.5)) * time)
    return (0.4 * tone * np.clip(8 * (time % 0.5), 0, 1)).astype(np.float32)


def build(folder: Path, model: str, config: Any, *readers: Any) -> Path:
    """A folder with a model of random weights, wide enough that no two heads agree."""
    torch.manual_seed(0)
    made = getattr(transformers, model)(config)
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if weights.ndim > 1 and "conv" not in name:
                weights.normal_(std=0.3)
    if config.model_type == "whisper":
        ids = {name: 340 + place for place, name in enumerate(MARKS)}
        own = made.generation_config
        own._from_model_config = False
        own.lang_to_id = {f"<|{name}|>": ids[f"<|{name}|>"] for name in LANGUAGES}
        own.task_to_id = {name: ids[f"<|{name}|>"] for name in ("translate", "transcribe")}
        own.no_timestamps_token_id = ids["<|notimestamps|>"]
        own.is_multilingual, own.alignment_heads = True, [[0, 1], [1, 0], [1, 3]]
        own.suppress_tokens = sorted(set(ids.values()))
    made.save_pretrained(folder)
    for reader in readers:
        reader.save_pretrained(folder)
    return folder


def whisper(folder: Path) -> Path:
    pieces = byte_pieces()
    pieces.add_special_tokens({"additional_special_tokens": MARKS})
    assert len(pieces) == 340 + len(MARKS)
    config = transformers.WhisperConfig(
        vocab_size=len(pieces), num_mel_bins=16, d_model=32, max_source_positions=150,
        max_target_positions=40, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, pad_token_id=340,
        bos_token_id=340, eos_token_id=340, decoder_start_token_id=341,
    )  # fmt: skip
    extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=3)
    return build(folder, "WhisperForConditionalGeneration", config, extractor, pieces)


CONVS = {
    "conv_dim": (16, 16), "conv_stride": (20, 16), "conv_kernel": (40, 16),
    "num_feat_extract_layers": 2, "intermediate_size": 48, "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2, **DEEP,
}  # fmt: skip
SAMPLES = {"feature_size": 1, "sampling_rate": RATE}


def _encoder(name: str, **more: Any) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        config = getattr(transformers, f"{name}Config")(**CONVS, **more)
        return build(
            folder, f"{name}Model", config, transformers.Wav2Vec2FeatureExtractor(**SAMPLES)
        )

    return made


def ast(folder: Path) -> Path:
    config = transformers.ASTConfig(
        **DEEP, intermediate_size=48, max_length=160, num_mel_bins=32, patch_size=8,
        frequency_stride=8, time_stride=8,
    )  # fmt: skip
    extractor = transformers.ASTFeatureExtractor(num_mel_bins=32, max_length=160)
    return build(folder, "ASTModel", config, extractor)


def speech_to_text(folder: Path) -> Path:
    config = transformers.Speech2TextConfig(
        vocab_size=340, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, conv_channels=16,
        input_feat_per_channel=16, max_source_positions=200, max_target_positions=40,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
    )  # fmt: skip
    extractor = transformers.Speech2TextFeatureExtractor(feature_size=16, num_mel_bins=16)
    model = "Speech2TextForConditionalGeneration"
    return build(folder, model, config, extractor, byte_pieces())


def moonshine(folder: Path) -> Path:
    config = transformers.MoonshineConfig(
        vocab_size=340, hidden_size=32, intermediate_size=48, encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2, encoder_num_attention_heads=4, decoder_num_attention_heads=4,
        max_position_embeddings=40, bos_token_id=0, eos_token_id=2, decoder_start_token_id=0,
    )  # fmt: skip
    extractor = transformers.Wav2Vec2FeatureExtractor(**SAMPLES)
    return build(folder, "MoonshineForConditionalGeneration", config, extractor, byte_pieces())


def parakeet(folder: Path, kind: str = "CTC") -> Path:
    """Letters of frames; an "RNNT" also reads the letters before, without attention."""
    bands = {"num_mel_bins": 16, "subsampling_conv_channels": 8, "max_position_embeddings": 200}
    frames = {**DEEP, **bands, "intermediate_size": 48}
    config = getattr(transformers, f"Parakeet{kind}Config")(vocab_size=40, encoder_config=frames)
    try:
        extractor = transformers.ParakeetFeatureExtractor(feature_size=16)
    except ImportError:
        pytest.skip("this release of transformers makes Parakeet's spectrograms with librosa")
    return build(folder, f"ParakeetFor{kind}", config, extractor)


def wav2vec2_bert(folder: Path) -> Path:
    config = transformers.Wav2Vec2BertConfig(
        **DEEP, intermediate_size=48, feature_projection_input_dim=32
    )
    extractor = transformers.SeamlessM4TFeatureExtractor(feature_size=16, num_mel_bins=16)
    return build(folder, "Wav2Vec2BertModel", config, extractor)


def two_models(folder: Path) -> Path:
    """A BERT that writes what wav2vec 2.0 hears."""
    words = transformers.BertConfig(vocab_size=340, max_position_embeddings=40,
                                    intermediate_size=48, **DEEP)  # fmt: skip
    config = transformers.SpeechEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.Wav2Vec2Config(**CONVS), words
    )
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 0, 1, 2
    extractor = transformers.Wav2Vec2FeatureExtractor(**SAMPLES)
    return build(folder, "SpeechEncoderDecoderModel", config, extractor, byte_pieces())


SPEECH_BUILDERS: dict[str, Callable[[Path], Path]] = {
    "whisper": whisper,
    "speech_to_text": speech_to_text,
    "moonshine": moonshine,
    "wav2vec2": _encoder("Wav2Vec2"),
    "hubert": _encoder("Hubert"),
    "wavlm": _encoder("WavLM"),
    "ast": ast,
    "parakeet_ctc": parakeet,
    "sew": _encoder("SEW", squeeze_factor=2),
    "wav2vec2-bert": wav2vec2_bert,
    "speech-encoder-decoder": two_models,
}
