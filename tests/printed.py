"""Whether what is printed here is what a document shows, whatever processor calculated."""

import re

NUMBER = re.compile(r"[+−-]?\d*\.?\d+")
BARS = re.compile(r" *[▏▎▍▌▋▊▉█]+")
NEAR = 1e-5
"""How far two processors' arithmetic is apart, relative to a number."""


def alike(expected: str, printed: str) -> bool:
    """Whether two outputs say the same: words, and numbers to what arithmetic gives anywhere."""
    expected, printed = (BARS.sub("", text.strip("\n")) for text in (expected, printed))
    words = [NUMBER.sub("#", text).split() for text in (expected, printed)]
    numbers = [NUMBER.findall(text) for text in (expected, printed)]
    return words[0] == words[1] and all(map(close, *numbers))


def close(one: str, other: str) -> bool:
    """Whether two numbers differ by one in the last digit, or by little of their size."""
    digits = [len(number.partition(".")[2]) for number in (one, other)]
    first, second = (float(number.replace("−", "-")) for number in (one, other))
    if abs(first - second) <= NEAR * abs(second):
        return digits[0] == digits[1] or max(map(len, (one, other))) > FEW
    return digits[0] == digits[1] and abs(first - second) < 1.5 * 10.0 ** -digits[0]


FEW = 6  # digits of a number whose last zeros are written


def matches(expected: str, printed: str) -> bool:
    """Whether the output is the expected one, a line `…` standing for any lines."""
    parts = re.split(r"^…\n", expected.strip("\n") + "\n", flags=re.MULTILINE)
    lines, start = printed.strip("\n").split("\n"), 0
    for number, part in enumerate(parts):
        own = part.split("\n")[:-1]
        last = len(lines) - len(own)
        places = range(start, last + 1) if number else [0]
        if number == len(parts) - 1:
            places = [last] if last >= start and (number or not last) else []
        start = next(
            (at + len(own) for at in places
             if alike("\n".join(own), "\n".join(lines[at : at + len(own)]))),
            -1,
        )  # fmt: skip
        if start < 0:
            return False
    return True
