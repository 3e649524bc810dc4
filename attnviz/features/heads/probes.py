"""What heads do in texts made for it: copy a needle from far away, and carry the task of examples.

A retrieval head looks at the needle's token that the model is about to write (Wu 2024). A head
carries a task if the right answer gets less likely once its output tells of no task (Todd 2023).
"""

import random
from collections.abc import Callable, Iterator

import numpy as np

from attnviz.core.attention_map import Attention
from attnviz.core.effects import Experiment, HeadAt, Intervention, every_head
from attnviz.core.errors import UsageError
from attnviz.core.records import dataclass
from attnviz.features.ablate.parts import replacements

_WORDS = (
    "apple arm baby bag ball bank bed bird blue boat book bottle box bread bridge brother cake car "
    "cat chair cheese child city coat coffee cold cow cup day dog door dream ear egg eye face farm "
    "fire fish flower foot friend garden girl glass green hand hat head horse house ice key king "
    "knife lake letter light milk money moon mother mouth music name night nose paper park pen "
    "queen rain red ring river road room salt school sea ship shoe sky snow song star stone street "
    "sugar summer sun table tea time town train tree water wind window winter woman wood world"
)
WORDS = tuple(_WORDS.split())
"""Short common words: most tokenizers have one token for each."""
Scores = dict[HeadAt, float]
NEEDLES, NEEDLE, HAY = 6, 4, 36  # texts, words of the needle, words around it
TASKS = (
    "hot cold, big small, day night, old new, good bad, black white, open close, young old",
    "cat cats, dog dogs, car cars, tree trees, book books, boy boys, girl girls, river rivers",
    "one two, two three, three four, four five, five six, six seven, seven eight, eight nine",
)
"""Pairs of opposites, of singulars and plurals, of numbers and the next."""
SHOTS, PROMPTS = 4, 2  # examples in a prompt, and prompts for each task


@dataclass(frozen=True, slots=True)
class Needle:
    """A text that ends by saying a needle again, and where its two copies begin."""

    text: str
    copies: tuple[int, int]


def needles() -> Iterator[Needle]:
    """Texts of random words with a needle at several depths."""
    for seed in range(NEEDLES):
        words = random.Random(seed).sample(WORDS, HAY + NEEDLE)
        needle, depth = " ".join(words[:NEEDLE]), NEEDLE + HAY * seed // NEEDLES
        before, after = " ".join(words[NEEDLE:depth]), " ".join(words[depth:])
        text = f"{before} {needle} {after} {needle}".strip()
        yield Needle(text, (len(f"{before} ".lstrip()), len(text) - len(needle)))


def retrieval_scores(read: Callable[[str], Attention]) -> tuple[Scores, float]:
    """The share of a needle's tokens that each head looks at most, and the share by chance."""
    hits, chance, total = dict[HeadAt, int](), 0.0, 0
    for needle in needles():
        (item,) = (attention := read(needle.text)).maps
        ends = [at + len(needle.text) - needle.copies[1] for at in needle.copies]
        # The space before a word can be part of its token.
        copies = [
            [
                number
                for number, token in enumerate(item.key_tokens)
                if not token.special and start < token.end <= end
            ]
            for start, end in zip(needle.copies, ends, strict=True)
        ]
        if item.stream != "causal" or len(copies[0]) != len(copies[1]):
            raise UsageError("the probes are for models that continue a text")
        # Its first token is the cue.
        for early, late in zip(copies[0][1:], copies[1][1:], strict=True):
            strongest = item.weights[:, :, late - 1, :late].argmax(axis=-1)
            total, chance = total + 1, chance + 1 / late
            for at in every_head(attention):
                hit = strongest[item.layers.index(at.layer), at.head] == early
                hits[at] = hits.get(at, 0) + int(hit)
    return {at: count / total for at, count in hits.items()}, chance / total


def prompts(*, wrong_answers: bool = False) -> Iterator[tuple[str, str]]:
    """Few-shot prompts with the right answer; the examples may have `wrong_answers`."""
    for task in TASKS:
        pairs = [pair.split(" ") for pair in task.split(", ")]
        for seed in range(PROMPTS):
            some = random.Random(seed).sample(pairs, SHOTS + 1)
            answers = [answer for _, answer in some]
            if wrong_answers:
                answers = [*answers[1:SHOTS], answers[0], answers[SHOTS]]
            shots = [f"{word} {answer}" for (word, _), answer in zip(some, answers, strict=True)]
            yield f"{', '.join(shots[:SHOTS])}, {some[SHOTS][0]}", answers[SHOTS]


def task_scores(open_text: Callable[[str], Experiment]) -> Scores:
    """How many nats each head's output adds to log p of the right answers of few-shot prompts.

    A head that is off puts out its mean over the prompts with shuffled answers, which tell of no
    task.
    """
    untold = [open_text(prompt).head_outputs() for prompt, _ in prompts(wrong_answers=True)]
    totals = dict[HeadAt, float]()
    for count, (prompt, answer) in enumerate(prompts(), 1):
        experiment = open_text(f"{prompt} {answer}")
        tokens = experiment.attention.main.key_tokens
        places = [
            n
            for n, one in enumerate(experiment.outputs)
            for at in (one.position,)
            if at is not None
            and at < len(tokens)
            and not tokens[at].special
            and tokens[at].end > len(prompt)
        ]
        numbers = [experiment.outputs[n].number for n in places]
        every = every_head(experiment.attention)
        changes = [Intervention(), *(Intervention(heads=(at,)) for at in every)]
        instead = replacements("mean", untold, experiment.attention)
        log_p = [float(rows[places, numbers].sum()) for rows in experiment.run(changes, instead)]
        for at, off in zip(every, log_p[1:], strict=True):
            totals[at] = totals.get(at, 0.0) * (count - 1) / count + (log_p[0] - off) / count
    return totals


def as_array(
    scores: Scores, stream: str, layers: tuple[str, ...], heads: tuple[str, ...]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The scores of a stream's heads, shape (layers, heads); NaN for heads without a score."""
    rows = [[scores.get(HeadAt(stream, x, int(y)), np.nan) for y in heads] for x in layers]
    return np.array(rows, dtype=np.float64)


def repeated_words(count: int = 24, seed: int = 0) -> str:
    """Different words in random order, twice."""
    words = " ".join(random.Random(seed).sample(WORDS, count))
    return f"{words} {words}"
