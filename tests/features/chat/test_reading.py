"""Parts of any length, read from a kernel row by row or by indicators, against whole matrices."""

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from attnviz.models.hugging_face.capture import passes, scores
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks, parts_between
from tests.features.chat.models import chat_model
from tests.hugging_face import tiny_models

LENGTH = 90
KEYS = (0, 1, 5, 40, 41, 42, LENGTH)
SENTENCES = (60, 61, 77, LENGTH)
ROWS = [
    parts_between(SENTENCES),
    parts_between((60, *range(77, LENGTH + 1))),  # many short ones, which one tile holds
    TokenBlocks(60, LENGTH),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.llama(tmp_path_factory.mktemp("parts") / "llama")


@pytest.mark.parametrize("how", ["rows", "indicators", "eager"])
@pytest.mark.parametrize("queries", ROWS)
def test_parts_are_sums_over_keys_and_means_over_rows(queries, how, folder, monkeypatch):
    monkeypatch.setattr(scores, "TILE", 8 * LENGTH)
    monkeypatch.setattr(scores, "ROWS", 8)
    if how != "rows":
        monkeypatch.setattr(passes, "read_tiles", lambda *_, **__: None)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    if how == "eager":
        monkeypatch.setattr("attnviz.models.hugging_face.capture.capture.probe_layers", no_kernel)
    ids = {"input_ids": torch.arange(LENGTH)[None] % 300}
    grid = PooledGrid(queries, parts_between(KEYS))
    (found,) = capture(model, ids, {"causal": (LENGTH, LENGTH)}, grids={"causal": grid})
    eager = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        whole = torch.cat(eager(**ids, output_attentions=True).attentions).numpy()
    means = [whole[:, :, a:b].mean(axis=2) for a, b in queries.spans]
    cells = [[row[..., a:b].sum(axis=-1) for a, b in pairwise(KEYS)] for row in means]
    np.testing.assert_allclose(found.weights, np.moveaxis(cells, (0, 1), (2, 3)), atol=1e-5)


def no_kernel(*_, **__):
    return {}


LONG = """
import json, resource, sys
import attnviz
words = "The red car is fast, and the blue car is slow. " * int(sys.argv[2])
chat = [{"role": "user", "content": words}, {"role": "assistant", "content": words[:4700]}]
attnviz.attend(chat, model=sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_square_of_the_text(tmp_path):
    """3,000 tokens of 12 heads would be 430 MB in matrices."""
    folder = chat_model(tmp_path / "model")
    config = folder / "config.json"
    config.write_text(
        json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 9000})
    )
    sizes = [
        int(subprocess.run([sys.executable, "-c", LONG, folder, str(count)],
                           capture_output=True, check=True, text=True).stdout)
        for count in (60, 200)
    ]  # fmt: skip
    assert sizes[1] - sizes[0] < 120_000  # kilobytes
