"""The causal pocket model's files, and what its card says: every figure by the shipped code."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_call import AttentionCall
from attnviz.features.pocket_lm.language_model import CausalPocket, load_pocket_lm
from attnviz.mechanisms.dot_product import join_heads, split_heads
from attnviz.models.light.network import Shape
from attnviz.models.pocket.card import ATTRIBUTION
from attnviz.models.pocket.text import END, SPECIALS
from training.causal import CONFIG
from training.corpus import checksum, read_pairs, read_sentences
from training.finish import float16, write_json

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

LONGEST = CONFIG["max_position_embeddings"]
PIECES, SEQUENCES = 24, 64
"""Random pieces in a sequence that is repeated once, and the number of such sequences."""
CLEAR = 0.5
"""The share of a row's attention that makes a role."""


def finish(
    asked: Namespace, origin: dict[str, Any], weights: dict[str, Tensor], sizes: Shape
) -> None:
    """Write the folder that ships, measured, with its card."""
    folder = asked.output / "model"
    export(weights, sizes, asked.tokenizer, folder)
    origin["revision"] = checksum(folder / "model.safetensors")[:12]
    origin["data"] = {"file": asked.data.name, "sha256": checksum(asked.data)}
    origin["limits"] = {"pieces": origin["recipe"]["length"] - 1, "nats": 0.0}
    write_json(origin, folder / "origin.json")
    write_measured(folder, asked.data, asked.unseen)


def write_measured(folder: Path, data: Path, unseen: Path) -> dict[str, Any]:
    """Measure the model in a folder, and write figures and card into its origin.

    Args:
        folder: what `finish` wrote.
        data: lines of English, a tab and French.
        unseen: the English sentences among them that it was not trained on.
    """
    model, path = load_pocket_lm(folder=folder), folder / "origin.json"
    origin: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    pairs, kept_out = read_pairs(data), set(read_sentences(unseen))
    english, seen = (
        list(dict.fromkeys(pair.en for pair in pairs if (pair.en in kept_out) == inside))
        for inside in (True, False)
    )
    french = [pair.fr for pair in pairs if pair.en in kept_out]
    origin["data"]["sentences"] = len(seen)
    origin["figures"] = measure(model, english, french, seen)
    origin["limits"]["nats"] = origin["figures"]["outside"]["nats"]
    origin |= describe_causal(origin, model.sizes, folder)
    write_json(origin, path)
    return origin


def export(weights: dict[str, Tensor], sizes: Shape, tokenizer: Path, folder: Path) -> None:
    """A folder that transformers loads as LlamaForCausalLM, with its tokenizer."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(float16(weights), folder / "model.safetensors", metadata={"format": "pt"})
    document = json.loads(tokenizer.read_text(encoding="utf-8"))
    start = [{"SpecialToken": {"id": SPECIALS[END], "type_id": 0}}]
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    again = [{"Sequence": {"id": "B", "type_id": 0}}]
    ids = {SPECIALS[END]: {"id": SPECIALS[END], "ids": [END], "tokens": [SPECIALS[END]]}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": start + text,
        "pair": start + text + start + again,
        "special_tokens": ids,
    }
    written = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(written, encoding="utf-8")
    names = {f"{side}_token": SPECIALS[END] for side in ("bos", "eos")}
    reader = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LONGEST}
    write_json(
        reader | names | {"pad_token": SPECIALS[0], "unk_token": SPECIALS[1]},
        folder / "tokenizer_config.json",
    )
    ends = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": 0}
    write_json(ends, folder / "generation_config.json")
    config = {
        **CONFIG,
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.size,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "head_dim": sizes.size // sizes.heads,
    }
    write_json(config | ends, folder / "config.json")


def measure(
    model: CausalPocket, unseen: list[str], other: list[str], seen: list[str]
) -> dict[str, Any]:
    """Every figure of the card.

    Args:
        model: as it ships.
        unseen: English sentences that it was not trained on.
        other: sentences in another language.
        seen: what it was trained on, to draw pieces from as often as they occur there.
    """
    losses, shares = zip(*(read(model, text) for text in unseen), strict=True)
    means = np.array([float(one[:-1].mean()) for one in losses])
    pieces = np.concatenate(losses)
    bound = round(float(np.quantile(means, 0.99)), 1)
    foreign = [float(read(model, text)[0][:-1].mean()) for text in other]
    random = np.random.default_rng(7)
    known = np.concatenate([ids_of(model, text) for text in seen])
    drawn = known[random.integers(len(known), size=(SEQUENCES, PIECES))]
    usual = measure_repetition(model, drawn)
    rows = [
        {
            "layer": layer,
            "head": head,
            **{
                name: round(float(np.mean([one[name][layer, head] for one in shares])), 3)
                for name in shares[0]
            },
            **{name: round(float(usual[name][layer, head]), 3) for name in ("induction", "same")},
            "cost": round(
                measure_repetition(model, drawn, (layer, head))["again"] - usual["again"], 2
            ),
        }
        for layer in range(model.sizes.layers)
        for head in range(model.sizes.heads)
    ]
    return {
        "unseen": {
            "sentences": len(unseen),
            "nats": round(float(pieces.mean()), 3),
            "perplexity": round(float(np.exp(pieces.mean())), 1),
        },
        "outside": {
            "nats": bound,
            "unseen": round(float((means > bound).mean()), 3),
            "french": round(float((np.array(foreign) > bound).mean()), 3),
        },
        "repeated": {
            "as in the text": {name: round(float(usual[name]), 3) for name in TOLD},
            "any piece as often": {
                name: round(float(value), 3)
                for name, value in measure_repetition(model, draw_pieces(model)).items()
                if name in TOLD
            },
        },
        "heads": rows,
    }


TOLD = ("first", "again", "copied")


def draw_pieces(model: CausalPocket) -> NDArray[np.int64]:
    """Random different pieces of the whole vocabulary, shape (SEQUENCES, PIECES)."""
    random, every = np.random.default_rng(8), np.arange(len(SPECIALS), model.sizes.vocabulary)
    return np.stack([random.choice(every, PIECES, replace=False) for _ in range(SEQUENCES)])


def ids_of(model: CausalPocket, text: str) -> list[int]:
    """A text's pieces by number."""
    from attnviz.models.pocket.text import encode_text

    return encode_text(text, model.tokenizer, longest=1 << 20).ids


def read(model: CausalPocket, text: str) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """A text's nats, of each piece and the end; of each layer and head where a row looks."""
    ids = [END, *ids_of(model, text)]
    states, layers = model.forward(model.weights, model.inputs(ids))
    weights = np.stack(layers["causal"])[..., 1:, :]
    rows = np.arange(weights.shape[-2])
    looks = {"previous": weights[..., rows, rows], "itself": weights[..., rows, rows + 1]}
    looks["start"] = weights[..., 0]
    losses = nats(model.scores(model.weights, states), np.array([*ids[1:], END]))
    return losses, {name: found.mean(-1) for name, found in looks.items()}


def nats(scores: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """−log p of what is expected, of scores (…, choices)."""
    shifted = scores.astype(np.float64) - scores.max(-1, keepdims=True)
    found: NDArray[np.float64] = np.log(np.exp(shifted).sum(-1))
    found -= np.take_along_axis(shifted, expected[..., None], -1)[..., 0]
    return found


def measure_repetition(
    model: CausalPocket, drawn: NDArray[Any], off: tuple[int, int] | None = None
) -> dict[str, Any]:
    """What the model predicts for pieces (sequences, count) and their repetition.

    Args:
        model: as it ships.
        drawn: numbers of pieces.
        off: the layer and head that puts out zeros.

    Returns:
        Nats a piece the "first" time and "again", the first piece but not counted, how many are
        "copied" right; by layer and head the share of a row of the second half that goes to the
        piece after the earlier occurrence ("induction"), to that ("same") and to the one before.
    """
    count = drawn.shape[1]
    ids = np.concatenate([np.full((len(drawn), 1), END), drawn, drawn], axis=1)

    def switch_off(seen: AttentionCall) -> Any:
        if off is None or seen.path != model.streams["causal"].format(off[0]):
            return seen.output
        heads = split_heads(seen.output, model.sizes.heads) + 0
        heads[..., off[1], :, :] = 0
        return join_heads(heads)

    given: Any = ids  # of many sequences at once
    states, layers = model.forward(model.weights, model.inputs(given), switch_off)
    scores = model.scores(model.weights, states[:, :-1])
    losses = nats(scores, ids[:, 1:])
    rows = np.arange(count + 1, 2 * count + 1)
    weights = np.stack(layers["causal"])
    right = scores[:, count + 1 :].argmax(-1) == ids[:, count + 2 :]
    return {
        "first": losses[:, :count].mean(),
        "again": losses[:, count + 1 :].mean(),
        "copied": right.mean(),
        "induction": weights[..., rows, rows - count + 1].mean((1, 3)),
        "same": weights[..., rows, rows - count].mean((1, 3)),
        "previous": weights[..., rows, rows - 1].mean((1, 3)),
    }


ROLES = {
    "induction": "looks at the piece after the earlier occurrence",
    "same": "looks at the earlier occurrence",
    "previous": "looks at the piece before",
    "itself": "looks at the piece itself",
    "start": "rests on the <eos> at the start",
}
"""What a head does, where it can, before what it does else."""


def describe_causal(origin: dict[str, Any], sizes: Shape, folder: Path) -> dict[str, Any]:
    """The card's lines by section, and one for a list of models."""
    from training.causal import INDUCTION, PREVIOUS, Recipe

    figures, recipe = origin["figures"], Recipe(**origin["recipe"])
    unseen, outside = figures["unseen"], figures["outside"]
    megabytes = (folder / "model.safetensors").stat().st_size / 1e6
    shape = f"{sizes.layers} layers × {sizes.heads} heads"
    led = {PREVIOUS: "previous", INDUCTION: "induction"}
    lengths = [
        f"layer {PREVIOUS[0]} head {PREVIOUS[1]}, by ten positions each: "
        + " ".join(f"{share:.2f}" for share in shares)
        for shares in [figures.get("places")]
        if shares
    ]
    heads = []
    for one in figures["heads"]:
        place = one["layer"], one["head"]
        clear = [
            f"{what}{', as it was led to' * (led.get(place) == name)} ({one[name]:.2f})"
            for name, what in ROLES.items()
            if one[name] >= CLEAR
        ]
        what = ", else ".join(clear) or "no clear role"
        heads.append(f"layer {place[0]} head {place[1]}  {what}; off: {one['cost'] + 0.0:+.2f}")
    again = [
        f"random pieces, {name}, {PIECES} and again: {one['first']:.2f} nats a piece the first "
        f"time, {one['again']:.2f} the second; {one['copied']:.0%} copied right"
        for name, one in figures["repeated"].items()
    ]
    return {
        "summary": f"English decoder of the Llama shape that ships with attnviz: {shape}",
        "card": {
            f"pocket-lm · revision {origin['revision']}": [
                "A small English language model with real induction heads; transformers loads its "
                "folder as LlamaForCausalLM.",
                f"{shape}, size {sizes.size}, {sizes.vocabulary} pieces; {megabytes:.1f} MB as "
                "float16.",
            ],
            "Data": [
                ATTRIBUTION,
                f"{origin['data']['sentences']} English sentences (file sha256 "
                f"{origin['data']['sha256'][:12]}); {unseen['sentences']} kept out",
                f"Continued from earlier weights (sha256 {origin['started_from']['sha256'][:12]}), "
                "trained on the same text."
                if origin["started_from"]
                else "Trained from random weights.",
            ],
            "Objective": [
                f"the next piece; {recipe.again:.0%} of sentences said twice, {recipe.random:.0%} "
                "of texts begin with random pieces that come again",
                f"layer {PREVIOUS[0]} head {PREVIOUS[1]} led to the piece before; layer "
                f"{INDUCTION[0]} head {INDUCTION[1]} led, in what comes again, to the piece after "
                "the earlier occurrence, and the other heads of its layer led away from there",
            ],
            "Figures": [
                f"{unseen['sentences']} unseen sentences with their ends: {unseen['nats']:.2f} "
                f"nats a piece, perplexity {unseen['perplexity']}",
                *again,
            ],
            "What its heads do": [
                *heads,
                "(in brackets the share of a row's attention; off: what switching the head off "
                "costs, in nats a piece of the second time, as in the text)",
            ],
            "Limits": [
                "short everyday English sentences; what it writes is grammatical at best",
                f"a text above {outside['nats']} nats a piece is said to lie outside: so does "
                f"{outside['unseen']:.1%} of unseen English and {outside['french']:.0%} of French "
                "sentences",
                f"trained on {recipe.length} pieces at once; more than {LONGEST - 1} are refused",
                *lengths,
            ],
        },
    }
