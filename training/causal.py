"""The causal pocket model's recipe: English sentences one after the other, and much said again.

What comes again forms induction heads (Olsson 2022). Two heads are led: one to the piece before,
one from a piece that came before to the piece after its earlier occurrence; the other heads of
its layer are led away from there, so that switching it off shows what it does.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy, dropout

from attnviz.features.pocket_lm.language_model import EMBEDDING, causal_shape
from attnviz.models.light.network import Shape, run_layers
from attnviz.models.pocket.model import predict_pieces
from attnviz.models.pocket.text import END, SPECIALS, load_piece_tokenizer
from training.batches import IGNORED
from training.corpus import leave_out, read_pairs, read_sentences
from training.finish import origin_of
from training.loop import Reporter, Run
from training.stages import follow, settings_of, start

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray
    from torch import Tensor

INDUCTION, PREVIOUS = (2, 3), (1, 1)
"""Layer and head of the two that are led."""
INDUCTION_SHARE, ALONE_SHARE, PREVIOUS_SHARE = 0.2, 0.1, 0.05
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 8000,
    "hidden_size": 160,
    "intermediate_size": 432,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "head_dim": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": True,
    "dtype": "float16",
}
"""What ships, as transformers configures it."""
DROPPED = 0.05
"""Of the embedded pieces' features, in training."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How training texts are made; each value but the last two is a chance from 0 to 1.

    Attributes:
        random: a text is random pieces, said twice or more often.
        anywhere: such pieces come from the whole vocabulary, not from the text as often as there.
        again: a sentence is repeated.
        longest: random pieces at most before they come again.
        length: pieces of a text.
    """

    random: float = 0.15
    anywhere: float = 0.3
    again: float = 0.25
    longest: int = 40
    length: int = 96


class Text(NamedTuple):
    """Pieces (length + 1), and how far back each one's earlier occurrence lies; 0 if not again."""

    ids: NDArray[np.int64]
    back: NDArray[np.int64]


class CausalLosses(NamedTuple):
    """In nats: a piece's, what training follows, then the means of its parts."""

    total: Tensor
    next: Tensor
    induction: Tensor
    alone: Tensor
    previous: Tensor


def draw(random: Generator, sentences: list[list[int]], flat: NDArray[Any], recipe: Recipe) -> Text:
    """One text.

    Args:
        random: source of every draw.
        sentences: the pieces of each.
        flat: all of them in a row.
        recipe: its chances.
    """
    ids, back = [END], [0]

    def say(pieces: list[int], period: int = 0) -> None:
        ids.extend(pieces)
        back.extend([period] * len(pieces))

    if random.random() < recipe.random:
        count = int(random.integers(4, recipe.longest + 1))
        if random.random() < recipe.anywhere:
            pieces = random.choice(np.arange(len(SPECIALS), 8000), count, replace=False).tolist()
        else:
            pieces = flat[random.integers(len(flat), size=count)].tolist()
        between = [END] * int(random.random() < 0.3)
        say(pieces)
        while len(ids) <= recipe.length - count:
            say(between)
            say(pieces, count + len(between))
            if random.random() < 0.5:
                break
        say([END])
    while len(ids) <= recipe.length:
        sentence = [*sentences[int(random.integers(len(sentences)))], END]
        say(sentence)
        if random.random() < recipe.again:
            say(sentence, len(sentence))
    size = recipe.length + 1
    return Text(np.array(ids[:size]), np.array(back[:size]))


def texts(
    sentences: list[list[int]], recipe: Recipe, seed: int, start: int, pieces: int
) -> Iterator[Text]:
    """Batches without end, (texts, length + 1), the same for the same seed wherever one starts."""
    flat = np.array([piece for sentence in sentences for piece in sentence])
    number = start
    while True:
        random = np.random.default_rng([seed, number])
        drawn = [draw(random, sentences, flat, recipe) for _ in range(pieces // recipe.length)]
        yield Text(*(np.stack(part) for part in zip(*drawn, strict=True)))
        number += 1


def train(asked: Namespace, sizes: Shape | None = None) -> None:
    """Train as the command line asks; of the sizes the vocabulary is the tokenizer's."""
    asked.output.mkdir(parents=True, exist_ok=True)
    unseen = read_sentences(asked.unseen) if asked.unseen else []
    pairs = read_pairs(asked.data)
    seen = list(dict.fromkeys(pair.en for pair in leave_out(pairs, unseen)))
    tokenizer = load_piece_tokenizer(asked.tokenizer)
    recipe, settings = Recipe(), settings_of(asked)
    sizes = replace(sizes or causal_shape(CONFIG), vocabulary=tokenizer.get_vocab_size())
    run = Run(
        settings,
        start(asked.start_from, sizes, settings, first_weights),
        lambda weights, batch: losses(weights, sizes, batch),
    )
    if asked.resume:
        run.resume(asked.output)
    with Reporter(settings, run.step) as reporter:
        reporter.note(f"{len(seen)} sentences")
        sentences = [one.ids for one in tokenizer.encode_batch(seen, add_special_tokens=False)]
        source = texts(sentences, recipe, settings.seed, run.step, settings.pieces)
        if not follow(run, source, reporter, asked):
            return
    from training.causal_figures import finish

    finish(asked, origin_of(asked, settings, recipe), run.weights, sizes)


def shapes(sizes: Shape) -> dict[str, tuple[int, ...]]:
    """The shape of every learned array by name."""
    size, inner = sizes.size, sizes.inner
    found: dict[str, tuple[int, ...]] = {EMBEDDING: (sizes.vocabulary, size)}
    for layer in (f"model.layers.{number}" for number in range(sizes.layers)):
        found |= {f"{layer}.self_attn.{part}_proj.weight": (size, size) for part in "qkvo"}
        found |= {f"{layer}.mlp.{part}_proj.weight": (inner, size) for part in ("gate", "up")}
        found[f"{layer}.mlp.down_proj.weight"] = size, inner
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{layer}.{norm}.weight"] = (size,)
    return found | {"model.norm.weight": (size,)}


def first_weights(sizes: Shape, seed: int) -> dict[str, Tensor]:
    """Weights before any training: normal with a deviation of 0.02, norms that change nothing."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * 0.02
        if len(shape) == 2
        else torch.ones(shape)
        for name, shape in shapes(sizes).items()
    }


def losses(weights: dict[str, Tensor], sizes: Shape, batch: Text) -> CausalLosses:
    """Every loss of one batch, by the same forward pass that answers the command line."""
    device = weights[EMBEDDING].device
    ids, back = (torch.from_numpy(part).to(device) for part in batch)
    read, expected, back = ids[:, :-1], ids[:, 1:], back[:, :-1]
    states, shares, _ = run_layers(weights, sizes, dropout(weights[EMBEDDING][read], DROPPED))
    scores = predict_pieces(weights, states, EMBEDDING.removesuffix(".weight"))
    following = cross_entropy(
        scores.float().flatten(0, 1), expected.flatten(), ignore_index=IGNORED
    )
    place = torch.arange(read.shape[1], device=device)
    layer, head = INDUCTION
    wanted = torch.where(back > 0, place - back + 1, 0)
    given = (
        shares[layer].float().gather(-1, wanted[:, None, :, None].expand(-1, sizes.heads, -1, 1))
    )
    given = given[..., 0] * (back > 0)[:, None]
    asking = (back > 0).sum().clamp(min=1)
    induction = -(torch.log(given[:, head] + 1e-6) * (back > 0)).sum() / asking
    others = [other for other in range(sizes.heads) if other != head]
    alone = -torch.log(1 - given[:, others].clamp(max=1 - 1e-3)).sum() / asking
    layer, head = PREVIOUS
    before = shares[layer].float()[:, head].diagonal(-1, -2, -1)
    previous = -torch.log(before + 1e-6).mean()
    total = (
        following + INDUCTION_SHARE * induction + ALONE_SHARE * alone + PREVIOUS_SHARE * previous
    )
    return CausalLosses(total, following, induction, alone, previous)
