"""Small ColBERT-like folders of random weights: ColBERT's own kind, and PyLate's."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.hugging_face.tiny_models import bert

SIZE = 32  # of hidden states
FACTS = {
    "query_maxlen": 12,
    "doc_maxlen": 14,
    "query_token_id": "un",
    "doc_token_id": "t",
    "mask_punctuation": True,
    "attend_to_mask_tokens": False,
}


def colbert(folder: Path, **facts: object) -> Path:
    """A checkpoint as ColBERT's own code writes it."""
    bert(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["HF_ColBERT"]}))
    weights = load_file(folder / "model.safetensors")
    weights = {f"bert.{name}": one for name, one in weights.items()}
    torch.manual_seed(1)
    weights["linear.weight"] = torch.randn(8, SIZE)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "artifact.metadata").write_text(json.dumps(FACTS | facts))
    return folder


def pylate(folder: Path, **facts: object) -> Path:
    """A checkpoint as PyLate writes it, with two projections, the second with a residual."""
    bert(folder)
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    torch.manual_seed(2)
    for number, (size, made, name, residual) in enumerate(
        [(SIZE, 16, "GELU", False), (16, 8, "Identity", True)], 1
    ):
        place = folder / f"{number}_Dense"
        place.mkdir()
        modules.append({"type": "pylate.models.Dense.Dense", "path": place.name})
        kind = f"torch.nn.modules.activation.{name}"
        about = {"in_features": size, "out_features": made, "activation_function": kind}
        (place / "config.json").write_text(json.dumps(about | {"use_residual": residual}))
        weights = {"linear.weight": torch.randn(made, size), "linear.bias": torch.randn(made)}
        if residual:
            weights["residual.weight"] = torch.randn(made, size)
        save_file(weights, place / "model.safetensors")
    (folder / "modules.json").write_text(json.dumps(modules))
    usual = {"query_prefix": "un", "document_prefix": "t", "query_length": 10}
    usual |= {"document_length": 14, "skiplist_words": [".", "the"]}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(usual | facts))
    return folder
