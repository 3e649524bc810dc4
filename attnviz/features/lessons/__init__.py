"""Lessons: one thing about attention each, in numbers from the mechanisms and in one picture."""

from attnviz.core.records import dataclass
from attnviz.core.registry import Entry


@dataclass(frozen=True, slots=True)
class LessonEntry(Entry):
    """A row of the table of lessons."""

    room = "attnviz.features.lessons."


_LESSONS = {
    "distance": {
        "positions": "Sinusoidal position encoding as a heat map.",
        "rotary": "Rotary positions: scores depend on distance alone, and fade with it.",
        "alibi": "Biases by distance: ALiBi's slopes, and T5's ranges.",
    },
    "softmax": {
        "scaling": "Scaled against unscaled softmax as the head size grows.",
        "temperature": "One row of scores, softened and sharpened by a temperature.",
        "online": "Softmax tile by tile equals the whole, with its running maximum and sum.",
        "sinks": "A sink lets a head that finds nothing look at nothing.",
    },
    "masks": {
        "masking": "Full against causal attention over the same scores.",
        "padding": "Why a padded batch needs a key mask.",
        "window": "A sliding window: what one layer sees, and how far several reach.",
    },
    "linear": {
        "linear": "Standard against linear attention: time and memory as the length grows.",
        "delta": "Linear attention forgets; the delta rule corrects what its state says.",
    },
    "memory": {
        "cache": "The key-value cache: what is computed again without it, and its bytes.",
        "groups": "Heads that share keys and values: memory against what is lost.",
    },
    "trained": {
        "training": "A small model learns to reverse a sequence: its heads, step by step.",
        "induction": (
            "A previous-token head feeds an induction head; cut the first, the second dies."
        ),
        "circuit": "The induction circuit in four steps, each measured and then taken away.",
    },
}
"""What each lesson teaches, by the file that its function is in."""
LESSONS = {
    name: LessonEntry(summary, f"{file}:{name}_lesson")
    for file, lessons in _LESSONS.items()
    for name, summary in lessons.items()
}
