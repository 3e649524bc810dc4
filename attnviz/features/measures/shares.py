"""Shares of attention on certain keys: neighbours, sinks, earlier copies, sentences, a prompt.

Means are over the rows that can see such a key: of N tokens, N − 1 have one before them. Induction
and duplicate-token heads are measured on a repeated text (Elhage 2021, Olsson 2022): in a random
list of L words that comes twice, only copying predicts the second half. The token at position i
also stands at i − L; an induction head attends to the token after that, i − L + 1.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np

from attnviz.analyses.folds import OnAlike, OnKeys, OnOne, Targets
from attnviz.analyses.masks import APART, MeasuredMap, Numbers, column_fold, within_one_text
from attnviz.analyses.sinks import sink_scores, well_seen
from attnviz.core.attention_map import Token, known_mean
from attnviz.core.measures import HeadMeasure
from attnviz.core.tokens import split_sentences, text_places


def same_group(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes to tokens whose label is the query's, of tokens that have one.

    Mean over the rows that see such a key, their own token left out.
    """
    sides = (subject.item.query_tokens, subject.item.key_tokens)
    queries, keys = ([token.label for token in side] for side in sides)
    if not any(queries) or not any(keys):
        return None
    targets = _alike(subject, queries, keys)
    return subject.share_on("same-group", targets, ("always another group", "only its own group"))


def _alike(
    subject: MeasuredMap, queries: Sequence[str | None], keys: Sequence[str | None]
) -> Targets:
    """The keys whose name is the query's, where it has one; but in one text not itself."""
    names = {name: n for n, name in enumerate(dict.fromkeys([*queries, *keys])) if name is not None}
    rows, columns = (
        np.array([names.get(x or "", -1) for x in side], dtype=np.int32) for side in (queries, keys)
    )
    return OnAlike(rows, columns, others=within_one_text(subject.item))


def previous_token(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes to the token before.

    Mean of a_(i, i−1) over the N − 1 rows that have a token before them.
    """
    return _diagonal(subject, "previous-token", -1, "the token before")


def next_token(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes to the token after.

    Mean of a_(i, i+1) over the N − 1 rows that have a token after them; none in a causal map.
    """
    return _diagonal(subject, "next-token", 1, "the token after")


def own_token(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that stays on the token itself.

    Mean of a_ii over all N rows.
    """
    return _diagonal(subject, "self", 0, "itself")


def _diagonal(subject: MeasuredMap, name: str, offset: int, what: str) -> HeadMeasure | None:
    if not within_one_text(subject.item):
        return None
    ends = (f"never {what}", f"only {what}")
    keys = np.arange(len(subject.item.key_tokens)) + offset
    return subject.share_on(name, OnOne(keys), ends)


def same_token(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes to other places of the same token.

    Over the rows that can see such a token; special tokens do not count. Across two texts the token
    itself is one.
    """
    sides = subject.item.query_tokens, subject.item.key_tokens
    queries, keys = ([None if token.special else token.text for token in side] for side in sides)
    ends = ("never the same token", "only other places of the same token")
    return subject.share_on("same-token", _alike(subject, queries, keys), ends)


def first_token(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes to the first token, from all the others.

    Mean of a_i0 over i ≥ 1: in a causal map the first token can only attend to itself. Across two
    texts the first key, from every query.
    """
    keys = np.zeros(len(subject.item.query_tokens), dtype=int)
    keys[: int(within_one_text(subject.item))] = -1
    ends = ("never the first token", "only the first")
    return subject.share_on("first-token", OnOne(keys), ends)


def special_token(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes to special tokens."""
    special = np.array([token.special for token in subject.item.key_tokens])
    ends = ("only text", "only special tokens")
    return subject.share_on("special-token", OnKeys(special), ends)


def punctuation(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes to punctuation marks."""
    marks = np.array([is_mark(token) for token in subject.item.key_tokens])
    ends = ("only words", "only punctuation")
    return subject.share_on("punctuation", OnKeys(marks), ends)


def is_mark(token: Token) -> bool:
    """True for a token of nothing but punctuation."""
    text = token.text.strip()
    marks = all(unicodedata.category(character).startswith("P") for character in text)
    return bool(text) and marks and not token.special


def sink(subject: MeasuredMap) -> HeadMeasure:
    """Attention that the strongest key gets from those who see it (Gu 2024).

    Only keys that at least half of the rows see count.
    """
    # Few rows see the last keys of a causal map, so a single row would decide their score.
    enough = well_seen(subject)
    heads, uniform = (np.where(enough, own, 0).max(axis=-1) for own in sink_scores(subject))
    return subject.compare(
        "sink", "share", ("no key stands out", "one key gets all"), (heads, uniform)
    )


SHORTEST = 4
"""Fewest repeated tokens."""


def induction(subject: MeasuredMap) -> HeadMeasure | None:
    """On a repeated sequence, share that goes to the token after the earlier copy.

    Mean of A[i, i − L + 1] over the second copy. That diagonal also crosses the last token of the
    first copy, which has nothing to repeat yet.
    """
    return _copying(subject, "induction", 1, "the token after the earlier copy")


def duplicate(subject: MeasuredMap) -> HeadMeasure | None:
    """On a repeated sequence, share that goes to the earlier copy of the token.

    Mean of A[i, i − L] over the second copy.
    """
    return _copying(subject, "duplicate", 0, "the earlier copy of the token")


def repetition(tokens: tuple[Token, ...]) -> tuple[list[int], list[int]]:
    """Positions at the end of a text that repeat the tokens before them, and those positions.

    Special tokens do not count.
    """
    places = text_places(tokens)
    texts = [tokens[place].text for place in places]
    best, period = 0, 0
    for shift in range(SHORTEST, len(texts) // 2 + 1):
        run = 0
        while run < shift and texts[-1 - run] == texts[-1 - run - shift]:
            run += 1
        if run > best:
            best, period = run, shift
    # The first token of the text has no space before it, so its pieces may differ in the second
    # copy.
    if best < max(SHORTEST, period - 1):
        return [], []
    second = range(len(places) - best, len(places))
    return [places[at] for at in second], [places[at - period] for at in second]


def _copying(subject: MeasuredMap, name: str, step: int, what: str) -> HeadMeasure | None:
    if not within_one_text(subject.item):
        return None
    later, earlier = repetition(subject.item.query_tokens)
    targets = np.full(len(subject.item.query_tokens), -1)
    targets[later] = np.array(earlier, dtype=int) + step
    ends = (f"never {what}", f"only {what}")
    return subject.share_on(name, OnOne(targets), ends)


LEAST = 4
"""Sentences whose scores have a kurtosis."""


def receiver(subject: MeasuredMap) -> HeadMeasure | None:
    """Kurtosis of what sentences receive from those four or more away (Bogdan 2025).

    A sentence's score is the mean weight from the tokens of each other sentence to its tokens,
    averaged over those sentences. The kurtosis of n scores is m₄ / m₂², at most n − 2 + 1/(n − 1).
    None where fewer than four sentences have a score.
    """
    count = len(split_sentences(subject.texts[0]))
    if not within_one_text(subject.item) or count < APART + LEAST:
        return None
    sizes = column_fold(subject.item, subject.texts[0]).sizes
    heads, uniform = subject.columns
    far = uniform[2][0, 0]  # how many sentences see it; in all layers alike
    columns = far > 0
    if columns.sum() < LEAST:
        return None

    def formula(sums: Numbers) -> Numbers:
        scores = (sums / sizes)[..., columns] / far[columns]
        off = scores - scores.mean(axis=-1, keepdims=True)
        spread = (off**2).mean(axis=-1)
        alike = spread <= 1e-12 * scores.mean(axis=-1) ** 2  # nothing but rounding
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(alike, np.nan, (off**4).mean(axis=-1) / spread**2)

    n = int(columns.sum())
    ends = ("sentences receive alike", "one sentence receives all")
    values = formula(heads[1]), formula(uniform[1])
    return subject.compare("receiver", "kurtosis", ends, values, top=n - 2 + 1 / (n - 1))


def lookback(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean weight on the prompt against that on the model's own output (Chuang 2024).

    Mean over the written tokens of p / (p + o), where p is the mean weight on the prompt's tokens
    and o on those written so far. None where the model wrote nothing.
    """
    first = subject.output_start
    if first is None or not within_one_text(subject.item):
        return None
    counts = np.arange(1, len(subject.item.key_tokens) - first + 1)
    output = np.arange(len(subject.item.key_tokens)) >= first
    prompts = subject.on("on-prompt", OnKeys(~output))
    outputs = subject.on("on-output", OnKeys(output))

    def formula(on_prompt: Numbers, on_output: Numbers) -> Numbers:
        prompt, output = on_prompt[..., first:] / first, on_output[..., first:] / counts
        with np.errstate(divide="ignore", invalid="ignore"):
            return known_mean(prompt / (prompt + output))

    heads, uniform = (formula(*side) for side in zip(prompts, outputs, strict=True))
    ends = ("only its own output", "only the prompt")
    return subject.compare("lookback", "share", ends, (heads, uniform))
