"""What each lesson claims, against loops and numbers worked out apart from the package."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.features.lessons.distance import alibi_lesson, positions_lesson, rotary_lesson
from attnviz.features.lessons.linear import delta_lesson, linear_lesson, peak_bytes
from attnviz.features.lessons.masks import masking_lesson, padding_lesson, window_lesson
from attnviz.features.lessons.memory import cache_lesson, cache_of, groups_lesson
from attnviz.features.lessons.softmax import (
    online_lesson,
    scaling_lesson,
    sinks_lesson,
    temperature_lesson,
)
from attnviz.features.lessons.trained import (
    COMMON,
    DRAWS,
    FEWEST,
    WORD,
    induction_lesson,
    training_lesson,
)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_wave_lengths_are_those_of_the_paper(size):
    expected = [2 * math.pi * 10000 ** (2 * pair / size) for pair in range((size + 1) // 2)]
    assert positions_lesson(10, size).column("wave_length") == pytest.approx(expected, rel=1e-5)


def test_positions_by_hand():
    lesson = positions_lesson(101, 4)
    assert lesson.column("turns") == pytest.approx([100 / (2 * math.pi), 1 / (2 * math.pi)])
    assert lesson.column("columns") == ("0 1", "2 3")
    assert lesson.rows[0][-1] == f"{math.sin(100):+.2f} {math.cos(100):+.2f}"
    gap_two = sum(math.cos(2 / 10000 ** (2 * pair / 8)) for pair in range(4))
    assert f"{gap_two:.2f} at 2" in positions_lesson(16, 8).explanation[2]
    lesson = positions_lesson(4, 5)
    assert lesson.column("columns") == ("0 1", "2 3", "4")
    assert "the lone last column left out" in lesson.explanation[2]


@pytest.mark.parametrize(("length", "size"), [(1, 4), (4, 0), (4096, 4)])
def test_positions_that_cannot_be_drawn_are_refused(length, size):
    with pytest.raises(UsageError, match="is outside"):
        positions_lesson(length, size)


def test_scaling_keeps_the_spread_of_scores():
    lesson = scaling_lesson()
    flat = lesson.column("scaled_entropy")[1:]
    falling = lesson.column("unscaled_entropy")
    assert max(flat) - min(flat) < 0.1
    assert all(later < earlier for earlier, later in itertools.pairwise(falling))
    assert falling[-1] < 0.05 * math.log(64)
    assert lesson.column("unscaled_largest")[-1] > 0.9 > 0.2 > lesson.column("scaled_largest")[-1]
    lesson = scaling_lesson(seed=3)
    for size, spread in zip(lesson.column("head_size"), lesson.column("score_spread"), strict=True):
        assert spread == pytest.approx(math.sqrt(size), rel=0.2)
    _, _, *measured = scaling_lesson().rows[0]
    assert measured[0] == measured[1]
    assert measured[2] == measured[3]


def test_one_row_of_scaling_agrees_with_a_loop():
    random = np.random.default_rng(0)
    queries, keys = random.standard_normal((512, 1)), random.standard_normal((64, 1))
    entropies, largest = [], []
    for query in queries:
        exponentials = [math.exp(float(query @ key)) for key in keys]
        weights = [value / sum(exponentials) for value in exponentials]
        entropies.append(-sum(weight * math.log(weight) for weight in weights))
        largest.append(max(weights))
    row = scaling_lesson(seed=0).rows[0]
    assert row[2] == pytest.approx(np.mean(entropies))
    assert row[4] == pytest.approx(np.mean(largest))


def test_masking_of_the_first_the_last_and_no_query():
    lesson = masking_lesson("one two three four")
    assert lesson.column("query") == ("one", "two", "three", "four")
    assert lesson.rows[0][2] == 0
    assert lesson.rows[0][4] == "one"
    assert lesson.rows[-1][1] == pytest.approx(lesson.rows[-1][2])
    assert lesson.rows[-1][-1] == pytest.approx(1)
    with pytest.raises(InputError):
        masking_lesson("  ")


def test_the_share_not_hidden_stretches_the_full_row():
    from attnviz.models.own import SeededEmbedding, word_tokens

    embedding = SeededEmbedding(5, 8)
    inputs = embedding.embed(word_tokens("a b c"))
    query, key = (inputs @ embedding.projection(name) for name in ("query", "key"))
    exponentials = [math.exp(float(query[1] @ key[k]) / math.sqrt(8)) for k in range(3)]
    left = (exponentials[0] + exponentials[1]) / sum(exponentials)
    shares = [value / sum(exponentials[:2]) for value in exponentials[:2]]
    row = masking_lesson("a b c", size=8, seed=5).rows[1]
    assert row[-1] == pytest.approx(left)
    assert row[2] == pytest.approx(-sum(share * math.log(share) for share in shares))


def test_memory_is_counted():
    lesson = linear_lesson(length=300, size=8)
    assert lesson.column("length") == (75, 150, 300)
    assert all(value > 0 for row in lesson.rows for value in row)
    lesson = linear_lesson(length=1024, size=32)
    standard, short = (lesson.column(f"{kind}_memory_bytes") for kind in ("standard", "linear"))
    assert standard[-1] / standard[-2] == pytest.approx(4, rel=0.1)
    assert short[-1] / short[-2] == pytest.approx(2, rel=0.1)
    assert standard[-1] >= 1024 * 1024 * 4

    def run() -> None:
        for _ in range(3):
            np.ones(100_000)

    assert 800_000 <= peak_bytes(run) < 900_000


@pytest.mark.parametrize("length", [1, 63, 10**6])
def test_a_length_that_cannot_be_measured_is_refused(length):
    with pytest.raises(UsageError, match="--length"):
        linear_lesson(length)


def softmax(scores: list[float]) -> list[float]:
    exponentials = [math.exp(score - max(scores)) for score in scores]
    return [value / sum(exponentials) for value in exponentials]


def test_a_temperature_divides_the_scores_before_the_softmax():
    from attnviz.models.own import SeededEmbedding, word_tokens

    embedding = SeededEmbedding(1, 8)
    inputs = embedding.embed(word_tokens("a b c d"))
    query, key = (inputs @ embedding.projection(name) for name in ("query", "key"))
    scores = [float(query[3] @ key[k]) / math.sqrt(8) for k in range(4)]
    for step, entropy, span, largest, answer in temperature_lesson("a b c d", 8, 1).rows:
        shares = softmax([score / step for score in scores])
        assert largest == pytest.approx(max(shares))
        assert entropy == pytest.approx(-sum(p * math.log(p) for p in shares if p), abs=1e-12)
        assert span == pytest.approx(math.exp(entropy))
        best = scores.index(max(scores))
        nudged = [score + 1e-6 * (k == best) for k, score in enumerate(scores)]
        slope = (softmax([score / step for score in nudged])[best] - largest) / 1e-6
        assert answer == pytest.approx(slope, abs=1e-5)


def test_running_sums_are_those_of_a_loop():
    lesson = online_lesson(length=10, seed=4)
    row = int(lesson.title.split("row ")[1].split(" ")[0])
    query, key, _ = (lambda r: [r.standard_normal((10, 8)) for _ in range(3)])(
        np.random.default_rng(4)
    )
    scores = [2 * float(query[row] @ key[k]) / math.sqrt(8) for k in range(10)]
    assert lesson.column("keys_read") == (4, 8, 10)
    for end, highest, _, total, off in lesson.rows:
        assert highest == pytest.approx(max(scores[:end]))
        assert total == pytest.approx(sum(math.exp(score - highest) for score in scores[:end]))
        assert off < 1e-12
    shares = lesson.panels[0].values
    assert np.nansum(shares, axis=1) == pytest.approx([1, 1, 1])
    assert np.isfinite(shares).sum(axis=1).tolist() == [4, 8, 10]


def test_sinks_and_masks_take_their_share():
    for score, match, none, _, length in sinks_lesson(size=8).rows:
        sink = math.exp(score)
        assert match == pytest.approx(1 - sink / (sink + math.exp(4) + 7))
        assert none == pytest.approx(1 - sink / (sink + 8))
        assert length == pytest.approx(none / math.sqrt(8))
    lesson = padding_lesson("one two three", seed=2)
    assert lesson.column("alone_entropy") == pytest.approx(lesson.column("masked_entropy"))
    assert max(lesson.column("masked_off_by")) < 1e-12 < 0.01 < min(lesson.column("padded_off_by"))
    assert all(0 < share < 1 for share in lesson.column("share_on_padding"))


@pytest.mark.parametrize(("length", "width"), [(25, 2), (12, 5), (3, 1)])
def test_a_window_reaches_as_far_as_a_walk_does(length, width):
    lesson = window_lesson(length, width)
    for with_global, column in ((False, "reached"), (True, "reached_with_a_global")):
        seen = {length // 2}
        for found in lesson.column(column):
            seen = {
                key
                for query in seen
                for key in range(length)
                if abs(key - query) <= width or (with_global and 0 in (key, query))
            }
            assert found == len(seen)
    assert lesson.column("reached")[-1] == length
    assert lesson.column("share_from_beyond")[0] == 0


def test_turns_and_slopes_by_distance():
    for gap, usual, slow, start, far in rotary_lesson(40, 8, seed=3).rows:
        for base, found in ((10_000, usual), (500_000, slow)):
            expected = sum(math.cos(gap / base ** (2 * pair / 8)) for pair in range(4)) / 4
            assert found == pytest.approx(expected)
        assert start == pytest.approx(far)
    for head, slope, halves, near, entropy in alibi_lesson(20, heads=4).rows:
        assert slope == 2 ** (-2 * (head + 1))
        shares = softmax([-slope * gap for gap in range(20)])
        assert near == pytest.approx(sum(shares[:8]))
        assert entropy == pytest.approx(-sum(p * math.log(p) for p in shares))
        assert math.exp(-slope * halves) == pytest.approx(0.5)


def test_a_states_errors_are_those_of_its_recurrence():
    random = np.random.default_rng(5)
    keys, values = random.standard_normal((2, 8, 4, 6))
    errors = np.zeros((3, 4))
    for key, value in zip(keys, values, strict=True):
        key = key / np.linalg.norm(key, axis=-1, keepdims=True)
        value = value / np.linalg.norm(value, axis=-1, keepdims=True)
        for way, keep in enumerate((1.0, 0.9, 1.0)):
            state = np.zeros((6, 6))
            for k, v in zip(key, value, strict=True):
                state = keep * state
                state += np.outer(v - state @ k if way == 2 else v, k)
            errors[way] += np.linalg.norm(key @ state.T - value, axis=-1) / 8
    lesson = delta_lesson(length=4, size=6, seed=5)
    assert lesson.rows[-1][0] == 4
    assert lesson.rows[-1][1:4] == pytest.approx(errors.mean(axis=-1), abs=1e-5)
    assert lesson.rows[-1][5] == pytest.approx(errors[2, -1], abs=1e-5)
    assert max(lesson.column("softmax_error")) < 0.01


def test_a_cache_computes_each_position_once():
    lesson = cache_lesson(length=100)
    for length, without, with_cache, held, unshared in lesson.rows:
        assert without == sum(range(1, length + 1))
        assert with_cache == length
        assert held == length * 2 * 32 * 8 * 128 * 2
        assert unshared == 4 * held


def config(folder: Path, **settings: object) -> Path:
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 4, "vocab_size": 50}
SHAPES = {
    "full": {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 4, "vocab_size": 50},
    "grouped": {"model_type": "llama", "num_key_value_heads": 2, "intermediate_size": 8, **SMALL},
    "one-group": {"model_type": "falcon", "multi_query": True, "new_decoder_architecture": False,
     **SMALL},
    "window": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 6,
     "intermediate_size": 8, "head_dim": 8, **SMALL},
    "some-windows": {"model_type": "gemma3_text", "num_key_value_heads": 2, "sliding_window": 6,
     "intermediate_size": 8, "head_dim": 16, "sliding_window_pattern": 2, **SMALL,
     "layer_types": ["sliding_attention", "full_attention"] * 2},
}  # fmt: skip


@pytest.mark.models
@pytest.mark.parametrize("name", SHAPES)
def test_a_cache_holds_what_transformers_keeps(name, tmp_path):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = config(tmp_path, **SHAPES[name])
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).eval()
    kept = model(torch.arange(5)[None], use_cache=True).past_key_values
    arrays = (one for layer in kept.layers for one in (layer.keys, layer.values))
    measured = sum(array.numel() for array in arrays)
    kinds, width, _ = cache_of(folder)
    assert sum(kind.layers * kind.numbers * 5 for kind in kinds) == measured
    assert width == 2
    windows = {kind.window for kind in kinds}
    assert windows == {"window": {6}, "some-windows": {6, 0}}.get(name, {0})


def test_a_latent_cache_is_that_of_the_paper(tmp_path):
    folder = config(
        tmp_path,
        model_type="deepseek_v2",
        num_hidden_layers=60,
        num_attention_heads=128,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        dtype="bfloat16",
    )
    lesson = cache_lesson(length=1, config=folder)
    assert lesson.rows[0][3] == 60 * (512 + 64) * 2  # Liu 2024, table 1: (d_c + d_R) a layer
    assert lesson.rows[0][4] == 60 * 128 * (128 + 64 + 128) * 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model_type": "mamba"}, "names no attention heads"),
        ({"model_type": "lama"}, "Did you mean 'llama'?"),
        ({"model_type": "llama", "num_hidden_layers": 10**9}, "'num_hidden_layers' is 1,000,000"),
        ({}, "names no 'model_type'"),
    ],
)
@pytest.mark.models
def test_a_configuration_without_a_cache_is_refused(settings, says, tmp_path):
    with pytest.raises(ModelError, match=says):
        cache_lesson(config=config(tmp_path, **settings))


def test_a_latent_beats_groups_of_its_size():
    lesson = groups_lesson()
    by_size = {(row[0] == "latent", row[2]): row[-1] for row in lesson.rows}
    assert by_size[False, 384] == pytest.approx(0, abs=1e-6)
    assert by_size[True, 192] == pytest.approx(0, abs=1e-4)
    for size in (192, 128, 64):
        assert by_size[True, size] < by_size[False, size]
    assert lesson.column("share_kept")[:4] == pytest.approx((1, 1 / 2, 1 / 3, 1 / 6))


@pytest.mark.slow
def test_a_layer_learns_and_an_induction_head_dies():
    lesson = training_lesson(length=6)
    assert lesson.rows[0][2] < 0.2
    assert lesson.rows[-1][2] > 0.99
    assert max(lesson.rows[-1][3:]) > 2.5 * max(lesson.rows[0][3:])
    one, other = (training_lesson(length=6, steps=20) for _ in range(2))
    assert one.rows == other.rows
    whole, without_first, without_second, another = induction_lesson(12, seed=1).rows
    assert whole[2] < whole[1] - 4
    assert without_first[2] > whole[2] + 3 < without_second[2]
    assert another[2] == pytest.approx(whole[2], abs=0.5)
    assert whole[5] > 0.7 > 0.3 > without_first[5]
    assert without_second[5] == whole[5]


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.core
def test_induction_is_that_of_transformers_with_zeroed_heads():
    import torch
    from transformers import LlamaForCausalLM

    from attnviz.features.pocket_lm.language_model import FOLDER, load_pocket_lm

    count, random, source = 10, np.random.default_rng(3), load_pocket_lm()
    known = [n for n in range(FEWEST, COMMON) if WORD.fullmatch(source.piece(n))]
    draws = [random.choice(known, count, replace=False).tolist() for _ in range(DRAWS)]
    ids = torch.tensor([[1, *draw, *draw] for draw in draws])
    lesson = induction_lesson(count, seed=3)
    for switched_off, first, again, copied, before, behind in lesson.rows:
        settings = {"attn_implementation": "eager", "dtype": torch.float32}
        model = LlamaForCausalLM.from_pretrained(FOLDER, **settings).eval()
        ids[:, 0] = model.config.bos_token_id
        if switched_off != "nothing":
            layer, head = map(int, switched_off.split(" ")[1].split("."))
            size = model.config.hidden_size // model.config.num_attention_heads
            mixer = model.model.layers[layer].self_attn.o_proj.weight
            mixer.data[:, head * size : (head + 1) * size] = 0
        with torch.inference_mode():
            found = model(ids, output_attentions=True)
        losses = torch.nn.functional.cross_entropy(
            found.logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none"
        )
        assert losses[:, :count].mean() == pytest.approx(first, abs=1e-3)
        assert losses[:, count + 1 :].mean() == pytest.approx(again, abs=1e-3)
        right = found.logits[:, count + 1 : -1].argmax(-1) == ids[:, count + 2 :]
        assert right.float().mean() == pytest.approx(copied)
        names = [row[0].split(" ")[-1] for row in lesson.rows[1:3]]
        (one, one_head), (two, two_head) = (map(int, name.split(".")) for name in names)
        rows = range(count + 1, 2 * count + 1)
        looks = found.attentions[two][:, two_head]
        own = [float(looks[:, row, row - count + 1].mean()) for row in rows]
        assert np.mean(own) == pytest.approx(behind, abs=2e-3)
        looks = found.attentions[one][:, one_head]
        own = [float(looks[:, row, row - 1].mean()) for row in range(2, 2 * count + 1)]
        assert np.mean(own) == pytest.approx(before, abs=2e-3)
