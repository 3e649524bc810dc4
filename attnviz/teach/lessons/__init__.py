"""Lessons: one thing about attention each, in numbers from the mechanisms and in one picture."""

from attnviz.core.registry import LessonEntry

LESSONS: dict[str, LessonEntry] = {
    "positions": LessonEntry(
        "Sinusoidal position encoding as a heat map.", "distance:positions_lesson"
    ),
    "rotary": LessonEntry(
        "Rotary positions: scores depend on distance alone, and fade with it.",
        "distance:rotary_lesson",
    ),
    "alibi": LessonEntry(
        "Biases by distance: ALiBi's slopes, and T5's ranges.", "distance:alibi_lesson"
    ),
    "scaling": LessonEntry(
        "Scaled against unscaled softmax as the head size grows.", "softmax:scaling_lesson"
    ),
    "temperature": LessonEntry(
        "One row of scores, softened and sharpened by a temperature.", "softmax:temperature_lesson"
    ),
    "online": LessonEntry(
        "Softmax tile by tile equals the whole, with its running maximum and sum.",
        "softmax:online_lesson",
    ),
    "sinks": LessonEntry(
        "A sink lets a head that finds nothing look at nothing.", "softmax:sinks_lesson"
    ),
    "masking": LessonEntry(
        "Full against causal attention over the same scores.", "masks:masking_lesson"
    ),
    "padding": LessonEntry("Why a padded batch needs a key mask.", "masks:padding_lesson"),
    "window": LessonEntry(
        "A sliding window: what one layer sees, and how far several reach.", "masks:window_lesson"
    ),
    "linear": LessonEntry(
        "Standard against linear attention: time and memory as the length grows.",
        "linear:linear_lesson",
    ),
    "delta": LessonEntry(
        "Linear attention forgets; the delta rule corrects what its state says.",
        "linear:delta_lesson",
    ),
    "cache": LessonEntry(
        "The key-value cache: what is computed again without it, and its bytes.",
        "memory:cache_lesson",
    ),
    "groups": LessonEntry(
        "Heads that share keys and values: memory against what is lost.", "memory:groups_lesson"
    ),
    "training": LessonEntry(
        "A small model learns to reverse a sequence: its heads, step by step.",
        "trained:training_lesson",
    ),
    "induction": LessonEntry(
        "A previous-token head feeds an induction head; cut the first, the second dies.",
        "trained:induction_lesson",
    ),
}
