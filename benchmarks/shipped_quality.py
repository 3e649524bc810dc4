"""Measure the causal or the picture model: the figures that its card prints.

Run it by hand: `python benchmarks/shipped_quality.py pocket-lm --pairs PAIRS --unseen
SENTENCES`, or `… pocket-vit --photographs FOLDER`. What is measured is printed as JSON; it goes
into the origin beside the weights with `--write`.

PAIRS: English<TAB>French lines. SENTENCES: English lines kept out of training. FOLDER: pictures
that are no drawings.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

from attnviz.models.pocket.card import CARDS


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("model", choices=("pocket-lm", "pocket-vit"))
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--unseen", type=Path)
    parser.add_argument("--photographs", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    from training import causal_figures, picture_figures

    with TemporaryDirectory() as made:
        folder = CARDS[asked.model]
        if not asked.write:
            folder = copytree(folder, Path(made) / "files")
        if asked.model == "pocket-lm":
            found = causal_figures.write_measured(folder, asked.pairs, asked.unseen)
        else:
            found = picture_figures.write_measured(folder, asked.photographs)
    print(json.dumps(found["figures"], indent=2))


if __name__ == "__main__":
    main()
