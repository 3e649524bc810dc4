"""Exact effects of all 72 heads of the pocket model over pairs: seconds, and that torch stays out.

Run it as a script; it prints what it took and asserts nothing. Without a file of pairs (source,
tab, target, a line each) those of `sample_inputs` are read over and over.

    python benchmarks/effects_pocket.py [PAIRS] [FILE]
"""

from __future__ import annotations

import os
import random
import sys
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter, process_time

from attnviz.core.options import Choice, Origin
from attnviz.features.pruning.curve import EffectChunk
from attnviz.storage.texts import Text

SAMPLE = Path(__file__).parents[1] / "sample_inputs" / "pairs.tsv"


def pairs_of(file: Path, count: int) -> list[Text]:
    """So many pairs of a file, drawn by chance where it has more."""
    lines = [line.split("\t")[:2] for line in file.read_text(encoding="utf-8").splitlines()]
    drawn = random.Random(0).sample(lines, count) if len(lines) > count else lines
    pairs = islice(cycle(drawn), count)
    return [Text(str(place), source, target) for place, (source, target) in enumerate(pairs)]


def main() -> None:
    """Measure them in this process."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    file = Path(sys.argv[2]) if len(sys.argv) > 2 else SAMPLE
    pairs = pairs_of(file, count)
    wall, processor = perf_counter(), process_time()
    found = list(EffectChunk(Origin(), Choice(), "cross")(pairs))
    wall, processor = perf_counter() - wall, process_time() - processor
    (heads,) = {len(result.effects) for result in found}  # type: ignore[union-attr]
    loaded = sum(name.partition(".")[0] == "torch" for name in sys.modules)
    print(
        f"{heads} heads, {count} pair{'s' * (count != 1)}: {wall:.1f} s, of the processor "
        f"{processor:.1f} s; cores: {len(os.sched_getaffinity(0))}; modules of torch: {loaded}"
    )


if __name__ == "__main__":
    main()
