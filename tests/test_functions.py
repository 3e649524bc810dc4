"""The commands as functions of Python, with models, texts and results in memory."""

import inspect
import json
import pickle
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz
from attnviz import attend, attend_many
from attnviz.cli.options import for_typer
from attnviz.commands.command import IN_PYTHON, KINDS
from attnviz.commands.findings import Findings
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.options import DECLARED, Choice, Origin
from attnviz.core.registry import COMMANDS, LENSES
from tests.hugging_face.tiny_models import gpt2
from tests.invoke import attnviz as run

TEXT = "The cat sat on the mat."
PAIRS = [
    ("The red car is fast.", "La voiture rouge est rapide."),
    ("I see a dog.", "Je vois un chien."),
]
WITHOUT_A_FUNCTION = {
    "self": "attend",
    "cross": "attend",
    "render": "load",
    "watch": "watch",
    "browse": "Result",
    "live": "",
    "examples": "",
    "models": "",
}
"""Commands that are another function of Python; lists and a page without a text need none."""


PRINTED = {"format", "quiet", "verbose", "open_page", "browse", "max_rows", "overwrite", "follow"}
PRINTED |= {"show", "fields", "errors", "digits", "table", "pieces"}
"""Options of the shell that mean nothing where nothing is printed."""


def test_the_shell_and_python_share_their_names():
    for command, entry in COMMANDS.items():
        if command in WITHOUT_A_FUNCTION:
            assert not (name := WITHOUT_A_FUNCTION[command]) or callable(getattr(attnviz, name))
            continue
        function = getattr(attnviz, command)
        assert function is entry.load()
        taken = inspect.signature(function).parameters
        assert not any(item.kind is item.VAR_KEYWORD for item in taken.values())
        for name in inspect.signature(for_typer(function.command)).parameters:
            assert name in taken or name in IN_PYTHON or name in PRINTED, (command, name)

    for name in ("attend", "attend_many", *(COMMANDS.keys() - WITHOUT_A_FUNCTION.keys())):
        function = getattr(attnviz, name)
        for item in inspect.signature(function).parameters.values():
            assert item.annotation is not item.empty, (name, item.name)
            shared = item.name in {**KINDS, "processor": None}
            assert shared or f"\n    {item.name}: " in function.__doc__, (name, item.name)
        assert "attnviz " + name not in function.__doc__
    assert {*DECLARED[Origin], *DECLARED[Choice]} <= {*inspect.signature(attend).parameters}
    for name, instead in IN_PYTHON.items():
        with pytest.raises(UsageError, match=re.escape(instead)):
            attnviz.heads(TEXT, **{name: "a.png"})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["heads", TEXT], lambda: attnviz.heads(TEXT)),
        (["heads", TEXT, "--sort", "entropy"], lambda: attnviz.heads(TEXT, sort="entropy")),
        (["steps", "The cat sat"], lambda: attnviz.steps("The cat sat")),
        (["lesson", "scaling"], lambda: attnviz.lesson("scaling")),
    ],
)
def test_a_function_finds_what_the_shell_prints(words, found):
    result = found()
    assert isinstance(result, Findings)
    assert result.to_json() == run(*words, "-f", "json").json()
    assert result.table(80) == run(*words).text
    assert result.value is not None
    assert str(result) == result.table()


@pytest.mark.slow
def test_lists_of_texts_and_pairs_are_read(tmp_path):
    texts = [TEXT, "", "A dog ran."]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found = attnviz.heads(texts)
    printed = run("heads", "--input", str(file), "-f", "json")
    assert found.to_json() == printed.json()
    assert [str(error) for error in found.errors] == ["text 1: the text is empty"]
    aligned = attnviz.align(PAIRS)
    assert aligned.table() == "0-0 2-1 1-2 3-3 4-4\n0-0 1-1 2-2 3-3\n"
    assert (repr(aligned), len(aligned.value)) == ("<Findings align · 2 results>", 2)


def test_errors_come_in_the_place_of_their_texts():
    first, second, third = attend_many([TEXT, " ", PAIRS[0][0]])
    assert isinstance(second, InputError)
    assert str(second) == "text 1: the text is empty"
    for found, text in ((first, TEXT), (third, PAIRS[0][0])):
        assert isinstance(found, attnviz.Result)
        np.testing.assert_allclose(found.weights, attend(text).weights, atol=2e-6)
        again = found.lens("rollout").weights
        np.testing.assert_allclose(again, attend(text, lens="rollout").weights, atol=2e-6)
    pair, other = attend_many(PAIRS)
    assert [item.main.stream for item in (pair, other)] == ["cross", "cross"]
    with pytest.raises(InputError, match="text 0: the text is empty"):
        attnviz.heads([""])


def test_results_are_measured_and_compared():
    one, other = attend(TEXT), attend("The dog sat on the mat.")
    measured = attnviz.heads([one, other])
    assert measured.value.texts == 2
    again = attnviz.heads([TEXT, "The dog sat on the mat."])
    for row, alone in zip(measured.to_rows(), again.to_rows(), strict=True):
        assert (row["layer"], row["measure"]) == (alone["layer"], alone["measure"])
        assert row["mean"] == pytest.approx(alone["mean"], abs=1e-4)
    compared = attnviz.compare(one, other)
    assert compared.value.map.weights.shape == one.weights.shape
    assert "The dog sat" in compared.table()


def test_a_table_in_a_notebook_prints_nothing(monkeypatch, capsys):
    plain = attnviz.heads(TEXT).table()
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    found = attnviz.heads(TEXT)
    assert found.table() == plain
    html = found._repr_html_()
    assert "<pre><span" in html  # its colours
    assert unescape(re.sub("<[^>]+>", "", html)).rstrip() == plain.rstrip()
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_findings_are_saved_drawn_and_made_frames(tmp_path):
    found = attnviz.heads(TEXT)
    found.save(tmp_path / "heads.json")
    assert json.loads((tmp_path / "heads.json").read_text()) == found.to_json()
    found.picture("overview", tmp_path / "heads.png")
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert found._repr_html_().startswith("<pre>")
    with pytest.raises(UsageError, match="unknown picture 'overvew'"):
        found.picture("overvew")
    with pytest.raises(UsageError, match="names no data format"):
        found.save(tmp_path / "heads.doc")
    with pytest.raises(UsageError, match="align draws no picture"):
        attnviz.align(PAIRS).picture()
    pandas = pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert (len(frame), frame["entropy"].dtype) == (24, float)

    for figure in (
        attend(TEXT).heatmap(),
        attend(TEXT).lines(),
        attnviz.heads(TEXT).picture("scatter"),
        attnviz.lesson("scaling").picture(),
    ):
        assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_notes_come_along_and_nothing_is_printed(capfd):
    found = attnviz.heads(TEXT)
    assert found.notes == [
        "induction and duplicate are measured on 24 random words, given twice (horse "
        "water king …); --no-repeat skips this"
    ]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: attnviz.heads(TEXT, srt="x"), "unknown option 'srt'"),
        (lambda: attnviz.heads(TEXT, sort="rle"), "Did you mean 'role'"),
        (lambda: attend(TEXT, max_size=0), "max_size=0 is out of range: at least 1"),
        (lambda: attend(TEXT, causal=1), "causal=1 is no bool"),
        (lambda: attend(TEXT, layer=1.5), "layer=1.5 is no str"),
        (lambda: attend(TEXT, device="gpu"), "unknown device 'gpu'"),
        (lambda: attend(TEXT, " "), "the target is empty"),
        (lambda: attend(TEXT, mechanism="multi-hed"), "Did you mean 'multi-head'"),
        (lambda: attend(TEXT, layer=7), "layer 7 does not exist"),
        (lambda: attend(TEXT, command="slf"), "unknown command 'slf'"),
        (lambda: attend(TEXT, command="cross", mechanism="cross"), "needs a TARGET"),
        (lambda: attend(TEXT, reduce="avg"), "unknown reduce 'avg'"),
        (lambda: list(attend_many(TEXT)), "a list of texts is needed"),  # type: ignore[arg-type]
        (lambda: list(attend_many([1])), "text 0 is 1: give a text"),  # type: ignore[list-item]
        (lambda: list(attend_many([("a", "b", "c")])), "a pair of two"),  # type: ignore[list-item]
        (lambda: attend(TEXT, 3), "the target is of type int"),  # type: ignore[arg-type]
        (lambda: attnviz.heads(42), "a list of texts is needed, and 42 is none"),
        (lambda: attnviz.heads([]), "no text was given"),
        (lambda: attnviz.heads(), "heads needs texts"),
        (lambda: attnviz.align(), "align needs texts"),
        (lambda: attnviz.ablate(*PAIRS[0], by="mean", reference=5), "a list of texts is needed"),
        (lambda: attend(TEXT).select(foo=1), "unknown option 'foo'"),
        (lambda: attend([TEXT]), "the text is of type list: attend_many takes several texts"),  # type: ignore[arg-type]
        (lambda: attend(TEXT, processor=object()), "--tokenizer is for a Hugging Face model"),
        (lambda: attend(TEXT, model=object(), tokenizer=object()), "is no model of transformers"),
    ],
)
def test_a_wrong_name_or_type_is_one_line(ask, message):
    with pytest.raises(AttnvizError) as caught:
        ask()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_result_gives_parts_of_itself():
    found = attend(*PAIRS[0])
    assert repr(found) == "<Result cross · pocket · 4 layers × 6 heads · 7 × 7 tokens · 3 streams>"
    assert found.select(layer=2, head=[0, 1]).weights.shape == (1, 2, 7, 7)
    assert found.select(2, 0).main == attend(*PAIRS[0], layer=2, head=0).main
    assert found.words().main == attend(*PAIRS[0], words=True).main
    assert found.stream("encoder").weights.shape == (4, 6, 7, 7)
    assert found.lens("gradient").main == attend(*PAIRS[0], lens="gradient").main
    assert [link.key for link in found.strongest(1)] == ["car"]
    with pytest.raises(UsageError, match="layer 9 does not exist"):
        found.select(layer=9)
    (again,) = [attnviz.from_dict(found.to_dict())]
    for name in LENSES:
        if name in ("rollout", "flow"):
            assert again.lens(name).lens_name == name
        else:
            with pytest.raises(UsageError):
                again.lens(name)


@pytest.mark.slow
def test_attention_compares_by_value_and_travels(tmp_path):
    found = attend(*PAIRS[0])
    changed = found.weights.copy()
    changed[0, 0, 0, 0] += 1e-3
    assert found == attend(*PAIRS[0])
    assert found.main != found.main.with_weights(changed)
    assert found != attend(*PAIRS[1])
    assert pickle.loads(pickle.dumps(found)) == found
    assert attnviz.from_dict(found.to_dict()) == found
    for suffix in (".npz", ".json", ".jsonl"):
        found.save(tmp_path / f"a{suffix}")
        assert attnviz.load(tmp_path / f"a{suffix}") == [found]
    kept = attend(TEXT, keep_qk=True)
    assert kept == attend(TEXT, keep_qk=True) != attend(TEXT)


def test_datasets_of_xarray_are_read_and_written():
    found = attend(*PAIRS[0])
    xarray = pytest.importorskip("xarray")
    dataset = xarray.Dataset.from_dict(found.to_dict())
    assert dataset["cross"].dims == ("cross_layer", "cross_head", "cross_query", "cross_key")
    assert attnviz.from_dict(dataset.to_dict(data="array")) == found
    with pytest.raises(InputError, match="the dataset has no 'attrs' with 'attnviz'"):
        attnviz.from_dict({"attrs": {}, "data_vars": {}})


def test_numbers_and_tensors_become_a_result():
    found = attnviz.from_numpy(np.full((2, 3, 4), 0.25), "abc", "wxyz")
    assert (found.main.stream, found.weights.shape, found.tokens) == (
        "cross",
        (1, 2, 3, 4),
        ("a", "b", "c"),
    )
    assert [token.text for token in attnviz.from_numpy(np.eye(2)).main.key_tokens] == ["0", "1"]
    assert attnviz.from_numpy(-np.eye(2), values="signed").main.values == "signed"
    for wrong in (2 * np.eye(3), np.eye(3) * 1j, np.zeros(3), np.full((2, 2), np.nan)):
        with pytest.raises(InputError):
            attnviz.from_numpy(wrong)
    with pytest.raises(InputError, match="2 query"):
        attnviz.from_numpy(np.eye(3), "ab")

    layers = tuple(torch.rand(1, 2, 3, 3).softmax(-1).requires_grad_() for _ in range(2))
    result = attnviz.from_numpy(layers, "abc")
    expected = np.stack([layer[0].detach().numpy() for layer in layers])
    np.testing.assert_array_equal(result.weights, expected)
    half = attnviz.from_numpy([layer.bfloat16() for layer in layers], "abc")
    np.testing.assert_allclose(half.weights, expected, atol=4e-3)
    row = attnviz.from_numpy([layer[:, :, -1:] for layer in layers], "abc")
    assert [token.text for token in row.main.query_tokens] == ["c"]
    np.testing.assert_array_equal(row.weights, expected[:, :, -1:])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = gpt2(tmp_path_factory.mktemp("python"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    return model, AutoTokenizer.from_pretrained(folder), folder


def test_a_model_in_memory_is_left_as_it_was(loaded):
    model, tokenizer, folder = loaded
    model.train()
    model.transformer.h[0].eval()
    before = {name: part.training for name, part in model.named_modules()}
    numbers = {name: value.clone() for name, value in model.state_dict().items()}
    found = attend("the cat sat", model=model, tokenizer=tokenizer)
    stored = attend("the cat sat", model=folder, device="torch")
    assert found.weights.tolist() == stored.weights.tolist()
    assert found.provenance.trained is None
    attend("the cat sat", model=model, tokenizer=tokenizer, lens="gradient")
    attnviz.heads(["the cat sat"], model=model, tokenizer=tokenizer)
    with pytest.raises(UsageError):
        attend("the cat sat", model=model, tokenizer=tokenizer, layer=99)
    assert {name: part.training for name, part in model.named_modules()} == before
    assert model.config._attn_implementation == "sdpa"
    assert all((value == numbers[name]).all() for name, value in model.state_dict().items())
    assert all(value.grad is None and value.requires_grad for value in model.parameters())
    model.eval()


def test_a_model_that_learned_is_read_anew(loaded):
    model, tokenizer, _ = loaded
    import torch

    given = {"model": model, "tokenizer": tokenizer}
    before = [attend("the cat sat", **given, lens=lens) for lens in ("raw", "gradient")]
    weight = model.transformer.h[0].attn.c_attn.weight
    learned = weight.detach().clone()
    with torch.no_grad():
        weight.mul_(1.5)
    after = [attend("the cat sat", **given, lens=lens) for lens in ("raw", "gradient")]
    assert before[0] != after[0]
    assert before[1] != after[1]
    with torch.no_grad():
        weight.copy_(learned)
    with pytest.raises(UsageError, match="GPT2LMHeadModel is in this process alone"):
        attnviz.heads(["a cat", "a dog"], model=model, tokenizer=tokenizer, workers=2)
    with pytest.raises(UsageError, match="needs its tokenizer or processor"):
        attend("a cat", model=model)


def test_wrapped_models_are_reached(loaded):
    import torch

    model, tokenizer, folder = loaded
    wrapped = torch.nn.DataParallel(model)
    found = attend("the cat sat", model=wrapped, tokenizer=tokenizer)
    stored = attend("the cat sat", model=folder, device="torch")
    assert found.weights.tolist() == stored.weights.tolist()
    assert found.provenance.settings["wrapped"] == "module"


def test_models_stay_loaded_until_let_go(tmp_path, monkeypatch):
    from attnviz.runs import many_texts

    loads: list[Any] = []
    real = many_texts.open_source

    def open_source(origin: Origin, *how: Any, **more: Any) -> Any:
        loads.append(origin.layer and origin.layer.seed)
        return real(origin, *how, **more)

    monkeypatch.setattr(many_texts, "open_source", open_source)
    attnviz.unload()
    for seed in (0, 0, 1, 0, 2, 0, 1):  # the one that was asked longest ago goes
        attend("the cat sat", mechanism=f"multi-head:seed={seed}")
    assert loads == [0, 1, 2, 1]
    attnviz.unload()
    attend("the cat sat", mechanism="multi-head:seed=1")
    assert loads == [0, 1, 2, 1, 1]


@pytest.mark.slow
def test_the_shipped_model_waits_for_no_torch():
    import subprocess
    import sys

    code = (
        f"import sys, attnviz; attnviz.heads({TEXT!r}); list(attnviz.attend_many([{TEXT!r}]));"
        f"attnviz.ablate({TEXT!r}, heads='2.0', explain='2').table();"
        "assert not {'torch', 'transformers', 'scipy', 'matplotlib'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("window", ["0", "0-3"])
def test_a_window_of_the_first_token_shows_each(window):
    whole, part = attend(TEXT), attend(TEXT, window=window)
    tokens = int(window[-1]) + 1
    weights = whole.main.weights[:, :, :tokens, :tokens]
    np.testing.assert_array_equal(part.main.weights, weights)
    assert not any("blocks" in note for note in part.notes)
