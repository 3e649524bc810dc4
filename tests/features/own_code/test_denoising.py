"""Models that denoise: what they write, and a map for each step, against LLaDA's own loop."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

import attnviz as attnviz_api
from attnviz.core.errors import InputError, ModelError
from attnviz.core.options import Origin
from attnviz.features.own_code import source as own_source
from attnviz.features.own_code.denoising import chosen_steps, counts_of, denoise
from attnviz.models.open import open_source
from tests.features.own_code import folders
from tests.hugging_face.tiny_models import rewrite
from tests.invoke import attnviz

TEXT = "the red car is"
MASK = 4


@pytest.fixture(scope="module")
def llada(tmp_path_factory):
    return folders.llada_folder(tmp_path_factory.mktemp("denoising") / "llada")


def attend(folder, count, **options):
    return attnviz_api.attend(TEXT, model=str(folder), allow="code", generate=count, **options)


def slow_pass(folder, ids):
    """Logits and matrices of the model in folder, head by head, with softmaxes written out."""
    own = {name[18:]: one.double() for name, one in load_file(folder / "model.safetensors").items()}
    x = own["wte.weight"][ids] + own["wpe.weight"][: len(ids)]
    layers = []
    for layer in range(2):
        part = {name[9:]: one for name, one in own.items() if name.startswith(f"blocks.{layer}.")}

        def norm(x, name, part=part):
            return functional.layer_norm(x, (32,), part[f"{name}.weight"], part[f"{name}.bias"])

        y, heads, mixed = norm(x, "attn_norm"), [], []
        q, k, v = (y @ part[f"{name}_proj.weight"].T for name in "qkv")
        for head in range(4):
            at = slice(8 * head, 8 * head + 8)
            powers = (q[:, at] @ k[:, at].T / 8**0.5).exp()
            heads.append(powers / powers.sum(1, keepdim=True))
            mixed.append(heads[-1] @ v[:, at])
        x = x + torch.cat(mixed, 1) @ part["attn_out.weight"].T
        y = norm(x, "ff_norm") @ part["ff_proj.weight"].T + part["ff_proj.bias"]
        x = x + functional.silu(y) @ part["ff_out.weight"].T + part["ff_out.bias"]
        layers.append(torch.stack(heads))
    x = functional.layer_norm(x, (32,), own["ln_f.weight"], own["ln_f.bias"])
    return x @ own["ff_out.weight"].T, torch.stack(layers).numpy()


def reference_steps(logits_of, prompt, length, steps):
    """The ids before each step and in the end, as generate.py of LLaDA goes, in one block."""
    x = torch.tensor([[*prompt, *[MASK] * length]])
    base, rest = divmod(length, steps)
    seen = [x[0].tolist()]
    for step in range(steps):
        mask_index = x == MASK
        logits = logits_of(x[0].tolist())[None]
        x0 = torch.argmax(logits, dim=-1)
        p = torch.softmax(logits.to(torch.float64), dim=-1)
        x0_p = torch.gather(p, -1, x0[..., None])[..., 0]
        x0 = torch.where(mask_index, x0, x)
        confidence = torch.where(mask_index, x0_p, -torch.inf)
        transfer = torch.zeros_like(x0, dtype=torch.bool)
        transfer[0, torch.topk(confidence[0], k=base + (step < rest)).indices] = True
        x = torch.where(transfer, x0, x)
        seen.append(x[0].tolist())
    return seen


def test_each_step_is_llada_s_and_its_weights_are_those_of_a_slow_pass(llada):
    result = attend(llada, 6)
    prompt = open_source(Origin(model=str(llada), allow="code"), "self").tokenizer(TEXT)[
        "input_ids"
    ]
    seen = reference_steps(lambda ids: slow_pass(llada, ids)[0], prompt, 6, 6)
    assert len(result.maps) == 6
    for number, (item, (ids, after)) in enumerate(zip(result.maps, pairwise(seen), strict=True), 1):
        assert item.stream == f"step {number} of 6 · self"
        assert [token.piece[0] for token in item.query_tokens] == ids
        assert np.abs(item.weights - slow_pass(llada, ids)[1]).max() < 1e-5
        masked = [token.text == "[MASK]" for token in item.query_tokens]
        assert masked == [one == MASK for one in ids]
        (place,) = (at for at, pair in enumerate(zip(ids, after, strict=True)) if len({*pair}) > 1)
        labels = {at: token.label for at, token in enumerate(item.query_tokens) if token.label}
        assert [*labels] == [place]
    last = [token.text for token in result.maps[-1].query_tokens]
    (open_place,) = (at for at, text in enumerate(last) if text == "[MASK]")
    last[open_place] = result.maps[-1].query_tokens[open_place].label
    assert result.text.split() == [one for one in last if not one.startswith("[")]


@pytest.mark.parametrize(("count", "steps"), [(6, 6), (32, 32), (40, 32), (75, 32)])
def test_more_tokens_than_steps_are_written_several_at_once(count, steps):
    table = torch.randn(5 + count, 50, generator=torch.Generator().manual_seed(count))
    table[:, MASK] = -5

    def logits_of(ids, _step=0):
        turned = torch.stack([table.roll(one, 1)[at] for at, one in enumerate(ids)])
        turned[:, MASK] = -9
        return turned

    prompt = [7, 8, 9, 10, 11]
    seen = reference_steps(logits_of, prompt, count, steps)
    made = denoise(logits_of, prompt, count, MASK)
    assert [list(step.read) for step in made] == seen[:-1]
    assert sum(counts_of(count, steps)) == count
    assert made[-1].after == seen[-1]


def test_a_model_that_predicts_one_place_before_is_read_so():
    """The scores at a place are those of the next one, as in a model made of a causal one."""
    made = denoise(
        lambda ids, _: torch.eye(30)[[(one + 1) % 30 for one in range(len(ids))]] * 9,
        [0, 1, 2],
        4,
        29,
        one_before=True,
    )
    written = {place: one for step in made for place, one in step.written.items()}
    assert written == {3: 3, 4: 4, 5: 5, 6: 6}


def test_the_mask_token_is_never_written():
    logits = torch.zeros(3, 8)
    logits[:, MASK], logits[:, 2] = 9.0, 1.0
    steps = denoise(lambda ids, _: logits, [1], 2, MASK)
    assert [one for step in steps for one in step.written.values()] == [2, 2]


def test_files_tables_and_the_page_name_the_steps(llada, tmp_path):
    page = tmp_path / "page.html"
    own = ("self", TEXT, "--model", llada, "--allow", "code", "--generate", "4")
    done = attnviz(*own, "-f", "json", "--html", page)
    maps = done.json()["maps"] if "maps" in done.json() else done.json()["records"][0]["maps"]
    names = [f"step {number} of 4 · self" for number in range(1, 5)]
    assert [item["stream"] for item in maps] == names
    assert "written in 4 steps, 1 token a step" in done.err
    assert [one["text"] for one in maps[0]["query_tokens"]].count("[MASK]") == 4
    (line,) = attnviz(*own, "-f", "jsonl", "-q").lines
    assert [item["stream"] for item in json.loads(line)["maps"]] == names
    shown = attnviz(*own, "--stream", "step 3")
    assert "step 3 of 4" in shown.out.decode()
    assert shown.out.decode().count("[MASK]") >= 4
    wrong = attnviz(*own, "--stream", "step 9")
    assert (wrong.status, "step 1 of 4" in wrong.mistake) == (2, True)
    assert '"step 4 of 4"' in page.read_text()
    rows = attnviz(*own, "-f", "tsv", "-q").lines
    assert len({line.split("\t")[0] for line in rows}) >= 1


def test_where_maps_of_all_steps_do_not_fit_some_are_kept(llada, monkeypatch):
    assert chosen_steps(32, 3) == [0, 16, 31]
    assert chosen_steps(5, 9) == [0, 1, 2, 3, 4]
    whole = attend(llada, 6)
    monkeypatch.setattr(own_source, "KEPT_BYTES", 3 * 4 * 8 * 12**2)
    some = attend(llada, 6)
    assert [item.stream for item in some.maps] == [f"step {n} of 6 · self" for n in (1, 3, 6)]
    assert "3 of 6 steps are shown, spread from the first to the last" in some.notes
    assert some.text == whole.text
    for item in some.maps:
        np.testing.assert_array_equal(item.weights, whole.map_of(item.stream).weights)


def test_what_cannot_denoise_says_why(llada, tmp_path):
    with pytest.raises(InputError, match="--generate can be 26 at most"):
        attend(llada, 40)
    folder = folders.llada_folder(tmp_path / "no_mask")
    for file, names in (("tokenizer_config.json", ("mask_token",)), ("config.json", ())):
        entries = json.loads((folder / file).read_text())
        for name in names:
            entries.pop(name, None)
        (folder / file).write_text(json.dumps(entries))
    rewrite(folder / "config.json", mask_token_id=None)
    for name in ("special_tokens_map.json",):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(ModelError, match="names no mask token, so that it writes nothing"):
        attend(folder, 3)
    plain = attnviz_api.attend(TEXT, model=str(folder), allow="code")
    assert plain.main.stream == "self"


def test_the_same_text_alone_has_one_map(llada):
    result = attnviz_api.attend(TEXT, model=str(llada), allow="code")
    prompt = [token.piece[0] for token in result.main.query_tokens]
    assert [item.stream for item in result.maps] == ["self"]
    assert np.abs(result.weights - slow_pass(llada, prompt)[1]).max() < 1e-5


@pytest.mark.slow
def test_a_model_that_calls_a_kernel_denoises_alike(tmp_path):
    results = []
    for way in ("kernel", "matmul"):
        folder = folders.llama_folder(tmp_path / way, way, causal=False, mask_token_id=MASK)
        results.append(attend(folder, 3))
    assert results[0].text == results[1].text
    for one, other in zip(*(result.maps for result in results), strict=True):
        assert one.stream == other.stream
        assert np.abs(one.weights - other.weights).max() < 1e-5


def test_words_of_a_step_are_not_told_before_they_are_written(llada):
    result = attend(llada, 4)
    for item in result.words().maps:
        texts = [token.text for token in item.key_tokens]
        assert texts.count("[MASK]") == 5 - int(item.stream.split()[1])
        np.testing.assert_allclose(item.weights.sum(-1), 1, atol=1e-5)
    assert result.parts.kind == "prompt and output"
