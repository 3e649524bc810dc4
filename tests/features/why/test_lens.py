"""The logit lens: each family against its own modules by hand, its picture, page and data."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from rich.cells import cell_len

import attnviz
from attnviz.core.query import Query
from attnviz.features.why.page import layers_page
from attnviz.features.why.picture import layers_picture
from attnviz.features.why.report import LayersReport, LensCell, LensColumn
from attnviz.features.why.table import layers_table, layers_tsv
from attnviz.models.hugging_face.text_model import load_model
from attnviz.renderers import Display
from tests.hugging_face import tiny_models
from tests.hugging_face.tiny_models import ENDS, SIZES, WIDE, but_slow, byte_pieces, save
from tests.invoke import attnviz as run

LM = ("--model", "pocket-lm")
DOGS = "Tom likes dogs. Mary likes cats. Tom likes"
TEXT, PAIR = "The red car is fast, and the blue car", ("The red car is fast", "La voiture rouge")


class Family:
    """Where a family keeps its layers, what its attention adds, and how its head reads a state."""

    def __init__(self, layers: str, adds: str, norm: str, head: str, **sizes: Any) -> None:
        self.layers, self.adds, self.norm, self.head = layers, adds.split(), norm, head
        self.scale, self.by = sizes.pop("scale", None), sizes.pop("by", 1.0)
        self.sizes = sizes


LLAMA = {"num_key_value_heads": 2, **WIDE}
USUAL = ("model.layers", "self_attn", "model.norm", "lm_head")
GEMMA = ("model.layers", "post_attention_layernorm", "model.norm", "lm_head")
FAMILIES = {
    "LlamaForCausalLM": Family(*USUAL, **LLAMA),
    "Qwen3ForCausalLM": Family(*USUAL, head_dim=8, **LLAMA),
    "Gemma2ForCausalLM": Family(
        *GEMMA,
        **LLAMA,
        head_dim=8,
        final_logit_softcapping=0.7,
        scale=lambda logits, _: 0.7 * torch.tanh(logits / 0.7),
    ),
    "Gemma3ForCausalLM": Family(*GEMMA, head_dim=8, sliding_window=4, **LLAMA),
    "CohereForCausalLM": Family(
        *USUAL, **LLAMA, logit_scale=0.3, scale=lambda logits, _: 0.3 * logits
    ),
    "GraniteForCausalLM": Family(
        *USUAL,
        **LLAMA,
        logits_scaling=3.0,
        residual_multiplier=0.4,
        embedding_multiplier=2.0,
        scale=lambda logits, _: logits / 3,
        by=0.4,
    ),
    "GPT2LMHeadModel": Family(
        *("transformer.h", "attn", "transformer.ln_f", "lm_head"), n_embd=32, n_layer=3, n_head=4
    ),
    "GPTNeoXForCausalLM": Family(
        *("gpt_neox.layers", "attention", "gpt_neox.final_layer_norm", "lm_head"), **WIDE
    ),
    "PhiForCausalLM": Family(
        *("model.layers", "self_attn", "model.final_layernorm", "lm_head"), **WIDE
    ),
    "OPTForCausalLM": Family(
        *("model.decoder.layers", "self_attn", "model.decoder.final_layer_norm", "lm_head"),
        **SIZES,
        ffn_dim=48,
        word_embed_proj_dim=32,
    ),
    "BloomForCausalLM": Family(
        *("transformer.h", "self_attention.dense", "transformer.ln_f", "lm_head"), **SIZES
    ),
    "MixtralForCausalLM": Family(*USUAL, **LLAMA, num_local_experts=4, num_experts_per_tok=2),
    "BertForMaskedLM": Family("bert.encoder.layer", "", "", "cls", **WIDE),
    "T5ForConditionalGeneration": Family(
        "decoder.block",
        "layer.0.SelfAttention layer.1.EncDecAttention",
        "decoder.final_layer_norm",
        "lm_head",
        scale=lambda logits, model: logits * model.config.d_model**-0.5,
    ),
}
FAST = ("GPT2LMHeadModel", "Gemma2ForCausalLM", "GraniteForCausalLM", "T5ForConditionalGeneration")


def made(folder: Path, name: str) -> Path:
    """A tiny checkpoint of a family, with random weights."""
    if name.startswith("T5"):
        return tiny_models.t5(folder)
    tokenizer, ends = (
        (tiny_models.word_pieces(), {}) if name.startswith("Bert") else (byte_pieces(), ENDS)
    )
    config = getattr(transformers, name).config_class(
        **FAMILIES[name].sizes, vocab_size=len(tokenizer), **ends
    )
    return save(folder, name, tokenizer, config)


def first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def by_hand(model: Any, family: Family, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """Logits after each layer, and those of attention alone, by the family's own modules."""
    states, added = [], defaultdict(lambda: 0.0)
    layers = model.get_submodule(family.layers)
    hooks = []
    for number, layer in enumerate(layers):
        hooks.append(
            layer.register_forward_pre_hook(
                lambda _, args, kwargs: states.append(args[0] if args else kwargs["hidden_states"]),
                with_kwargs=True,
            )
        )

        def add(*call: Any, number: int = number) -> None:
            added[number] = added[number] + family.by * first(call[-1])

        hooks += [layer.get_submodule(path).register_forward_hook(add) for path in family.adds]
    hooks.append(layers[-1].register_forward_hook(lambda *call: states.append(first(call[-1]))))
    with torch.no_grad():
        model(**inputs)
        for hook in hooks:
            hook.remove()
        alone = [states[0]]
        for number in range(len(layers)):
            alone.append(alone[-1] + added[number])

        def read(state: Any) -> Any:
            state = model.get_submodule(family.norm)(state) if family.norm else state
            logits = model.get_submodule(family.head)(state)
            return (family.scale(logits, model) if family.scale else logits)[0].numpy()

        return [read(one) for one in states], [read(one) for one in (*alone, states[-1])]


@pytest.mark.models
@pytest.mark.parametrize("name", but_slow(FAMILIES, FAST))
def test_the_lens_is_that_of_the_models_own_modules(tmp_path, name):
    folder = made(tmp_path, name)
    source, plain = (
        load_model(str(folder), device="cpu", with_head=True),
        getattr(transformers, name).from_pretrained(folder).eval(),
    )
    is_pair = name.startswith("T5")
    query = Query(*PAIR, "cross") if is_pair else Query(TEXT)
    encoding = source.encode(query)
    inputs = {key: torch.tensor([list(row)]) for key, row in encoding.inputs.items()}
    each, alone = by_hand(plain, FAMILIES[name], inputs)
    assert abs(each[0] - each[-1]).max() > 0.01
    assert not FAMILIES[name].adds or abs(alone[-2] - alone[-1]).max() > 0.01
    for expected, only in ((each, False), (alone, True))[: 1 + bool(FAMILIES[name].adds)]:
        stream = source.read_stream(query, lambda tokens: range(len(tokens)), attention_only=only)
        assert len(stream.states) == len(expected)
        for state, logits in zip(stream.states, expected, strict=True):
            some = slice(1, 3)
            np.testing.assert_allclose(stream.predict(state, some), logits[some], atol=1e-5)
            every = stream.predict(state, slice(0, len(logits)))
            np.testing.assert_allclose(every, logits, atol=1e-5)


@pytest.mark.models
@pytest.mark.parametrize("kind", ["bert", "bart"])
def test_attention_alone_needs_a_stream_that_heads_add_to(tmp_path, kind):
    pair = PAIR if kind == "bart" else ("The red car",)
    model = tiny_models.bart(tmp_path) if kind == "bart" else made(tmp_path, "BertForMaskedLM")
    done = run("why", *pair, "--layers", "--attention-only", "--model", model)
    assert "normalises the sum of a layer's input and what its heads write" in done.mistake
    rows = run("why", *pair, "--layers", "--model", model, "-f", "tsv").rows
    assert {row[2] for row in rows[1:]} == {"", "0", "1", "2"}


def assert_alike(columns: Any, others: Any) -> None:
    """The same predictions at the same places, to rounding."""
    for one, other in zip(columns, others, strict=True):
        place = one.position, one.token, one.choice, one.settled
        assert place == (other.position, other.token, other.choice, other.settled)
        for cell, same in zip(one.cells, other.cells, strict=True):
            assert (cell.layer, cell.top[0][0]) == (same.layer, same.top[0][0])
            assert cell.log_p == pytest.approx(same.log_p, abs=1e-4)


def test_the_same_lens_by_other_ways(tmp_path, monkeypatch):
    folder = made(tmp_path, "LlamaForCausalLM")
    for only in (False, True):
        both = [
            attnviz.why(
                TEXT, model=str(folder), layers=True, attention_only=only, device=device
            ).value.columns
            for device in ("light", "torch")
        ]
        assert_alike(*both)
    whole = attnviz.why(DOGS, model="pocket-lm", layers=True).value.columns
    monkeypatch.setattr("attnviz.features.why.layers.AT_ONCE", 20_000)
    assert_alike(attnviz.why(DOGS, model="pocket-lm", layers=True).value.columns, whole)


def test_a_class_has_one_column_and_others_settle():
    for only in (False, True):
        report = attnviz.why(DOGS, model="pocket-lm", layers=True, attention_only=only).value
        for column in report.columns:
            cells = [one for one in column.cells if one.layer != "model"]
            tops = [one.top[0][0] == column.choice for one in cells]
            first = next((n for n in range(len(tops)) if all(tops[n:])), None)
            assert column.settled == (None if first is None else cells[first].layer)
            assert column.cells[-1].top[0][0] == column.choice
            assert all(sum(p for _, p in one.top) <= 1 + 1e-9 for one in column.cells)
            for cell in column.cells:
                assert (cell.rank == 1) == (cell.top[0][0] == column.choice)
    picture = Path(attnviz.__file__).parent / "models" / "pocket_vit" / "files" / "sample.png"
    report = attnviz.why(str(picture), model="pocket-vit", layers=True).value
    (column,) = report.columns
    assert report.tokens == 1
    assert (column.token, column.choice, column.settled) == ("[CLS]", "star", "3")
    assert [one.likeliest for one in report.rows] == [one.top[0][0] for one in column.cells]


def test_rows_are_the_last_ones_or_those_that_are_named():
    longer = DOGS + ". Mary likes cats. Tom likes"
    every = attnviz.why(longer, model="pocket-lm", layers=True, rows="0-17").value
    usual = attnviz.why(longer, model="pocket-lm", layers=True).value
    assert [one.position for one in usual.columns] == [*range(6, 18)]
    assert_alike(usual.columns, every.columns[6:])
    assert usual.tokens == len(every.columns) == 18
    few = attnviz.why(longer, model="pocket-lm", layers=True, rows="3-5").value
    assert_alike(few.columns, every.columns[3:6])
    assert few.choice == every.columns[5].choice
    assert sum(one.attention + one.feed_forward for one in few.rows) + few.other == pytest.approx(
        few.logit, abs=1e-4
    )
    assert "tokens 6 to 17 of 18: --rows A-B" in run("why", longer, *LM, "--layers").text


def test_data_has_a_row_for_each_position_and_layer():
    lines = run("why", DOGS, *LM, "--layers", "-f", "tsv").text.splitlines()
    header, *rows = [line.split("\t") for line in lines]
    assert len(rows) == 11 * 4
    last = [dict(zip(header, row, strict=True)) for row in rows[-4:]]
    assert [one["likeliest"] for one in last] == ["likes", "to", "to", "dogs"]
    assert [one["settled"] for one in last] == ["0", "0", "0", "1"]
    assert float(last[-1]["attention"]) == pytest.approx(7.86, abs=0.01)
    assert rows[0][header.index("attention")] == ""
    document = json.loads(run("why", DOGS, *LM, "--layers", "-f", "json").text)
    column = document["columns"][-1]
    assert (column["choice"], column["settled"]) == ("dogs", "2")
    assert [one["top"][0][0] for one in column["cells"]] == ["likes", "to", "to", "dogs"]
    assert len(column["cells"][0]["top"]) == 5
    assert column["cells"][-1]["top"][0][1] == pytest.approx(float(last[-1]["p"]))


def test_the_table_marks_layers_on_narrow_screens(monkeypatch):
    for width in (40, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        text = run("why", DOGS, *LM, "--layers", "--attention-only").text
        assert max(map(cell_len, text.splitlines())) <= width
        assert text.count("▸dogs") == 2
        assert "\n    2 " in text
        assert "\nmodel " in text


def test_the_picture_has_cells_words_and_lines():
    finding = attnviz.why(DOGS, model="pocket-lm", layers=True)
    (axes,) = finding.picture("plot").axes
    words = [one.get_text() for one in axes.texts]
    assert words.count("dogs") == 4  # the token, its own prediction, and twice predicted
    assert "likes[10]" in words
    cells = [one for one in axes.collections if re.fullmatch(r"\d+ \d?", one.get_label())]
    assert len(cells) == 11 * 4
    lines = [one for one in axes.collections if type(one).__name__ == "LineCollection"]
    assert len(lines) == sum(one.settled is not None for one in finding.value.columns)


def test_the_page_shows_the_lens_unstyled_by_tokens(tmp_path):
    page = tmp_path / "lens.html"
    assert not run("why", DOGS, *LM, "--layers", "--html", page).status
    text = page.read_text("utf-8")
    assert text.count("<td ") == 11 * 4
    assert "<bdi>&lt;eos&gt;</bdi>" in text
    assert re.search(r'class="p19 settled" title="dogs \.97 · ', text)
    assert "<script" not in text


def test_tokens_are_data():
    names = ["\x1b[31mred", "漢字かな交じり文の長い語", "\u202eاب", "a\tb\nc", "<b>", "[/]"]
    columns = tuple(
        LensColumn(n, name, name, "0", (LensCell("0", ((name, 0.5),), -0.7, 1),))
        for n, name in enumerate(names)
    )
    known = attnviz.why(DOGS, model="pocket-lm", layers=True).value
    report = LayersReport(
        "a model", names[0], names[0], columns, 6, False, (), None, None, (), (), known.provenance
    )
    table = layers_table(report, Display(60))
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", table)
    assert "<b>" in table
    assert "[/]" in table
    page = layers_page(report, "attnviz why")
    assert "<b>" not in page
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", page)
    assert len(layers_tsv(report).splitlines()) == 7
    assert {len(line.split("\t")) for line in layers_tsv(report).splitlines()} == {11}
    assert layers_picture(report).axes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a b", *LM, "--rows", "0-1"), "--rows is for --layers"),
        (("a b", *LM, "--attention-only"), "--attention-only is for --layers"),
        (("a b", *LM, "--layers", "--rows", "0-9"), "--rows 0-9 does not lie in this text"),
        (("a b", *LM, "--layers", "--rows", "x"), "--rows"),
        (("a b a", *LM, "--layers", "--rows", "0-1", "--target", "next:a"),
         "which --rows 0-1 leaves out"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(arguments, says):
    assert says in run("why", *arguments).mistake
