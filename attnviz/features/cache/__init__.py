"""attnviz cache: what it costs if a cache holds fewer keys."""

from attnviz.core.registry import Policy

POLICIES: dict[str, Policy] = {
    "sinks": Policy("The first tokens.", "eviction:sinks", beside=True),
    "recent": Policy("The last tokens.", "eviction:recent"),
    "window": Policy("The last tokens, as a sliding window shows them.", "eviction:recent"),
    "h2o": Policy("Half the last tokens, half those that received most attention.", "eviction:h2o"),
    "heavy": Policy("The tokens that received most attention, and the last.", "eviction:heavy"),
    "tova": Policy("The tokens that the last query attends to most.", "eviction:tova"),
    "snapkv": Policy(
        "Of a prompt the tokens that its last queries attend to most.", "eviction:snapkv", once=True
    ),
    "random": Policy("Tokens drawn by chance.", "eviction:random"),
    "best": Policy(
        "The tokens whose loss costs later predictions most, each measured.",
        "eviction:best",
        measured=True,
    ),
}
