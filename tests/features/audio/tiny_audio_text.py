"""Small models of sound and text with random weights, saved as folders with their processors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers

from tests.features.audio.tiny_speech import build
from tests.hugging_face.tiny_models import byte_pieces

WORDS = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "max_position_embeddings": 4096, "bos_token_id": 0, "eos_token_id": 2,
         "pad_token_id": 1}  # fmt: skip
WHISPER = {"num_mel_bins": 16, "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4,
           "encoder_ffn_dim": 48, "max_source_positions": 1500}  # fmt: skip
ENCODER = {"num_mel_bins": 16, "hidden_size": 32, "num_hidden_layers": 2,
           "num_attention_heads": 4, "max_source_positions": 1500}  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}<s>{% for c in m['content'] %}"
    "{% if c['type'] == 'audio' %}MARK{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %} ?{% endfor %}"
)


def tokenizer_with(*marks: str) -> tuple[Any, dict[str, int]]:
    pieces = byte_pieces()
    pieces.add_special_tokens({"additional_special_tokens": [*marks]})
    return pieces, {name: pieces.convert_tokens_to_ids(name) for name in marks}


def voxtral(folder: Path) -> Path:
    pieces, ids = tokenizer_with("[INST]", "[/INST]", "[AUDIO]", "[BEGIN_AUDIO]")
    config = transformers.VoxtralConfig(
        audio_config={**ENCODER, "intermediate_size": 128},
        text_config={"model_type": "llama", "vocab_size": len(pieces), **WORDS},
        audio_token_id=ids["[AUDIO]"],
    )
    extractor = transformers.WhisperFeatureExtractor(feature_size=16)
    processor = transformers.VoxtralProcessor(extractor, pieces)
    return build(folder, "VoxtralForConditionalGeneration", config, processor)


def qwen2_audio(folder: Path) -> Path:
    pieces, ids = tokenizer_with("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")
    config = transformers.Qwen2AudioConfig(
        audio_config=WHISPER,
        text_config={"model_type": "qwen2", "vocab_size": len(pieces), **WORDS},
        audio_token_index=ids["<|AUDIO|>"],
    )
    extractor = transformers.WhisperFeatureExtractor(feature_size=16)
    processor = transformers.Qwen2AudioProcessor(extractor, pieces)
    return build(folder, "Qwen2AudioForConditionalGeneration", config, processor)


def _in_whisper_form(name: str, mark: str, **audio: Any) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        pieces, ids = tokenizer_with(mark)
        config = getattr(transformers, f"{name}Config")(
            audio_config={**ENCODER, "intermediate_size": 128, **audio},
            text_config={"model_type": "qwen2", "vocab_size": len(pieces), **WORDS},
            audio_token_id=ids[mark],
        )
        extractor = transformers.WhisperFeatureExtractor(feature_size=16)
        template = TEMPLATE.replace("MARK", mark)
        processor = getattr(transformers, f"{name}Processor")(
            extractor, pieces, chat_template=template, audio_token=mark
        )
        return build(folder, f"{name}ForConditionalGeneration", config, processor)

    return made


AUDIO_TEXT_BUILDERS: dict[str, Callable[[Path], Path]] = {
    "voxtral": voxtral,
    "qwen2_audio": qwen2_audio,
    "audioflamingo3": _in_whisper_form("AudioFlamingo3", "<sound>"),
    "glmasr": _in_whisper_form("GlmAsr", "<|pad|>", max_position_embeddings=1500),
}
