"""What the models inside print is the same on every processor: words, verdicts, order, numbers."""

import json
import os
import subprocess
import sys

import pytest

from tests.invoke import attnviz
from tests.kernels import skip_where_numpy_dies
from tests.printed import alike

TEXTS = [
    # The embedding is all that a query and a key of the first layer read: both parts are equal.
    ("Tom likes dogs. Tom likes", "Tom aime les chiens. Tom aime"),
    ("She gave the old man her last apple", "Elle a donné sa dernière pomme au vieil homme"),
    ("Where did you put the keys?", "Où as-tu mis les clés ?"),
]
QUESTIONS = [
    [command, text, *model, "-q"]
    for text, _ in TEXTS
    for model in (("-m", "pocket"), ("-m", "pocket-lm"))
    for command in ("self", "heads", "why", "explain")
] + [["cross", *pair, "-q"] for pair in TEXTS]


def answers() -> list[str]:
    return [attnviz(*question, together=True).text for question in QUESTIONS]


@pytest.mark.slow
@pytest.mark.parametrize(
    "processor",
    [
        {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Prescott"},
        {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"},
    ],
    ids=lambda processor: processor["OPENBLAS_CORETYPE"],
)
def test_processors_print_the_same(processor):
    skip_where_numpy_dies(processor)
    command = [sys.executable, "-m", "tests.test_processors"]
    done = subprocess.run(command, env=os.environ | processor, stdout=subprocess.PIPE, check=True)
    for question, one, other in zip(QUESTIONS, answers(), json.loads(done.stdout), strict=True):
        assert alike(one, other), f"{question}\n{one}\n{other}"


if __name__ == "__main__":
    json.dump(answers(), sys.stdout)
