"""Where torch overtakes numpy: whole processes that read more, or longer, texts.

Each is run with `--device light` and `torch`, in turns, and once as attnviz chooses. Run it as
a script with the folders of models, MiniLM without; it prints medians by the clock and of the
processor's own time, their ratios, and which of the two was chosen, and asserts nothing.

    python benchmarks/switch.py [FOLDER...]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from batches import minilm

ATTNVIZ = [str(Path(sys.executable).parent / "attnviz")]
SENTENCE = "the professor who supervised the student published the paper"
CASES = [(1, 1), (1, 38), (30, 1), (100, 1), (300, 1), (1000, 1)]
"""Texts, and sentences of each."""
TURNS = 3


def measure(*words: str) -> tuple[float, float, str]:
    """Seconds of a run of attnviz, of the processor for it, and what it says on stderr."""
    start, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*ATTNVIZ, *words], capture_output=True, text=True, check=True)
    took, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, sum(after[:2]) - sum(before[:2]), done.stderr


def main(folders: list[str]) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as place:
        for folder in folders:
            for texts, sentences in CASES:
                file = Path(place) / "texts.txt"
                file.write_text(f"{' '.join([SENTENCE] * sentences)}\n" * texts)
                given = ["self", "--input", str(file), "-m", folder, "-f", "none"]
                given += ["-o", f"{place}/out.npz"]
                rounds = [
                    [measure(*given, "--device", name)[:2] for name in ("light", "torch")]
                    for _ in range(TURNS)
                ]
                chosen = "torch" if "torch calculates" in measure(*given, "-v")[2] else "numpy"
                (light, own), (torch, other) = np.median(rounds, axis=0)
                print(
                    f"{Path(folder).name:12} {texts:5,} × {9 * sentences:3} words  numpy "
                    f"{light:6.2f} s  torch {torch:6.2f} s  {light / torch:5.2f} ×  of the "
                    f"processor {own:6.2f} s  {other:6.2f} s  {own / other:5.2f} ×  {chosen}",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:] or [minilm()])
