"""Prompts with what models write after them, against generation step by step with a cache."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import attnviz as attnviz_api
from attnviz.analyses.view import describe_run, divisions
from attnviz.core.errors import AttnvizError, InputError, ModelError, UsageError
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import attend, cross
from tests.hugging_face.tiny_models import ENDS, WIDE, byte_pieces, save
from tests.invoke import attnviz
from tests.precision import both, check_as_near

PROMPT = "The red car is"
WINDOW = {"sliding_window": 4}
TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}: {{ message['content'] }}</s>"
    "{% endfor %}{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


@pytest.fixture(scope="module")
def writer(folder_of):
    made = {}

    def find(kind, most=6):
        if (kind, most) not in made:
            made[kind, most] = load_model(str(folder_of(kind)), device="cpu", generate=most)
        return made[kind, most]

    return find


def steps_of(folder, kind, inputs, most):
    """transformers' own attention of each step of generation, with its cache of keys; and exactly.

    What is written has to be the same in float64.
    """
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()

    def write(model):
        return model.generate(
            **(inputs | {"output_attentions": True, "return_dict_in_generate": True}),
            do_sample=False,
            num_beams=1,
            max_new_tokens=most,
            min_new_tokens=most,
        )

    single, truth = both(model, write)
    assert torch.equal(single.sequences, truth.sequences)
    return single, truth


def stitched(steps):
    """The rows of all steps under one another, padded with the keys that were not there yet."""
    width = steps[-1][0].shape[-1]
    rows = [
        torch.stack([torch.nn.functional.pad(row[0], (0, width - row.shape[-1])) for row in step])
        for step in steps
    ]
    return torch.cat(rows, dim=-2).numpy()


@pytest.mark.core
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_one_pass_equals_steps_of_a_cache(kind, folder_of, writer):
    model = writer(kind)
    found = attend(model, PROMPT)
    ids = model.tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    most = found.provenance.settings["output tokens"]
    output, truth = steps_of(folder_of(kind), AutoModelForCausalLM, {"input_ids": ids}, most)
    expected = stitched(output.attentions)
    length = expected.shape[-1]
    assert length == ids.shape[1] + most - 1  # the last token is written, and not read
    check_as_near([found.weights[..., :length, :length]], [expected], [stitched(truth.attentions)])
    assert found.weights.shape[-1] == length + 1
    written = model.tokenizer.decode(output.sequences[0])
    assert found.text == written


FAMILIES = {
    "BloomForCausalLM": ("BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "GPTNeoForCausalLM": (
        "GPTNeoConfig",
        {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 4}
        | {"attention_types": [[["global", "local"], 1]]},
    ),
    "Gemma2ForCausalLM": (
        "Gemma2Config",
        {**WIDE, "num_key_value_heads": 2, "head_dim": 8} | WINDOW,
    ),
}


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.slow
def test_other_kernels_agree_with_their_steps(architecture, tmp_path):
    name, settings = FAMILIES[architecture]
    config = getattr(transformers, name)(vocab_size=340, **settings, **ENDS)
    folder = save(tmp_path, architecture, byte_pieces(), config)
    found = attend(load_model(str(folder), device="cpu", generate=6), PROMPT)
    ids = byte_pieces()(PROMPT, return_tensors="pt")["input_ids"]
    most = found.provenance.settings["output tokens"]
    output, truth = steps_of(folder, AutoModelForCausalLM, {"input_ids": ids}, most)
    known = []
    for step, layers in enumerate(output.attentions):
        for layer, weights in enumerate(layers):
            seen = ids.shape[1] + step
            rows = slice(0 if step == 0 else seen - 1, seen)
            # A cache of a sliding window has forgotten what came before it.
            known.append(found.weights[layer][:, rows, max(seen - weights.shape[-1], 0) : seen])
    own, its = (
        [weights[0] for layers in item.attentions for weights in layers] for item in (output, truth)
    )
    check_as_near(known, own, its)


def test_a_written_target_equals_its_steps(folder_of, writer):
    model = writer("bart", 5)
    found = cross(model, PROMPT)
    inputs = model.tokenizer(PROMPT, return_tensors="pt")
    queries = len(found.main.query_tokens)
    assert queries <= 6
    steps = steps_of(
        folder_of("bart"), AutoModelForSeq2SeqLM, {"input_ids": inputs["input_ids"]}, queries - 1
    )
    for stream in ("cross", "decoder"):
        expected, truth = (stitched(output[f"{stream}_attentions"]) for output in steps)
        weights = found.map_of(stream).weights[..., : expected.shape[-2], : expected.shape[-1]]
        check_as_near([weights], [expected], [truth])


def test_prompt_and_output_are_told_apart(writer):
    found = attend(writer("gpt2"), PROMPT)
    settings = found.provenance.settings
    first = settings["prompt tokens"]
    assert divisions(found, found.main) == (first, first)
    assert f"{first} tokens read, {settings['output tokens']} written" in describe_run(
        found, found.main
    )
    read, written = found.main.query_tokens[:first], found.main.query_tokens[first:]
    covered = {place for token in written for place in range(token.start, token.end)}
    letters = {place for place, letter in enumerate(found.text) if letter.isalnum()}
    assert {place for place in letters if place >= len(PROMPT)} <= covered
    assert min(covered) >= len(PROMPT) >= max(token.end for token in read)
    assert any("generated greedily" in note for note in found.provenance.notes)


def test_models_that_do_not_write_say_so(folder_of, writer, loaded):
    with pytest.raises(ModelError, match=r"'bert', which writes no text"):
        load_model(str(folder_of("bert")), device="cpu", generate=3)
    with pytest.raises(ModelError, match=r"use 'attnviz cross TEXT'"):
        attend(writer("bart", 5), PROMPT)
    with pytest.raises(ModelError, match=r"no trained language-model head"):
        attend(replace(loaded("gpt2"), max_new_tokens=3, can_generate=False), PROMPT)
    with pytest.raises(UsageError, match=r"give one of them"):
        cross(writer("bart", 5), "a", "b")
    for option in (("--generate", "3"), ("--chat",)):
        done = attnviz("self", "a", *option)
        assert (done.status, done.mistake.split(":")[0]) == (
            2,
            f"{option[0]} needs a model that writes",
        )
    with pytest.raises(InputError, match=r"the model reads 64: --generate can be \d+ at most"):
        attend(writer("gpt2", 63), PROMPT)
    with pytest.raises(ModelError, match=r"has no chat template: leave --chat out"):
        attend(replace(loaded("gpt2"), chat_template=True), "a")


@pytest.mark.slow
def test_a_chat_is_the_rendered_template(writer):
    model = writer("llama")
    model.tokenizer.chat_template = TEMPLATE
    found = attend(replace(model, chat_template=True, max_new_tokens=None), "The car")
    assert found.text == "<s>user: The car</s><s>assistant:"
    marks = [token.text for token in found.main.query_tokens if token.special]
    assert marks == ["<s>", "</s>", "<s>"]
    ids = model.tokenizer(found.text, add_special_tokens=False)["input_ids"]
    own = AutoModelForCausalLM.from_pretrained(model.name, attn_implementation="eager").eval()

    def read(own):
        return [torch.cat(own(torch.tensor([ids]), output_attentions=True).attentions).detach()]

    check_as_near([found.weights], *both(own, read))
    answered = attend(replace(model, chat_template=True), "The car")
    assert answered.text.startswith(found.text)
    first = answered.provenance.settings["prompt tokens"]
    assert first == len(ids)
    assert divisions(answered, answered.main) == (first, first)
    model.tokenizer.chat_template = "{{ raise_exception('only\nsystems') }}"
    with pytest.raises(ModelError, match=r"^the chat template of .* fails: only$"):
        attend(replace(model, chat_template=True), "a")


TURNS = [{"role": "system", "content": "red"}, {"role": "user", "content": "The car"}]
ANSWERED = [*TURNS, {"role": "assistant", "content": "is fast"}]
IN_PARTS = [TURNS[0], {"role": "user", "content": [{"type": "text", "text": "The car"}]}]
OPEN = "<s>system: red</s><s>user: The car</s><s>assistant:"
CLOSED = "<s>system: red</s><s>user: The car</s><s>assistant: is fast</s>"


@pytest.fixture
def chat_folder(copy_of):
    folder = copy_of("llama")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.mark.parametrize(("turns", "text"), [(TURNS, OPEN), (IN_PARTS, OPEN), (ANSWERED, CLOSED)])
def test_a_conversation_is_the_template_of_its_messages(turns, text, chat_folder, tmp_path):
    result = attnviz_api.attend(turns, model=chat_folder).attention
    assert result.text == text
    (same,) = attnviz_api.attend_many([turns], model=chat_folder, chat=True)
    np.testing.assert_array_equal(same.weights, result.weights)
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": turns}))
    asked = ("--chat", "--model", chat_folder, "-f", "json", "-q", "--digits", "6")
    for words in (("--input", file), (file,)):
        found = attnviz("self", *words, *asked).json()
        assert found["text"] == text
    answer = attnviz_api.explain(result).to_json()["answer"]
    assert answer == attnviz_api.explain(turns, model=chat_folder).to_json()["answer"]


def test_messages_need_a_template_and_chat(folder_of, tmp_path):
    for how, said in (
        ({}, "needs a model that writes"),
        ({"model": "llama"}, "has no chat template"),
        ({"model": "llama", "chat": False}, "messages are read by a chat template"),
        ({"model": "bart", "command": "cross"}, "messages are read by a chat template"),
    ):
        how = how | ({"model": folder_of(how["model"])} if "model" in how else {})
        with pytest.raises(AttnvizError, match=said):
            attnviz_api.attend(TURNS, **how)
    for more in ({"target": "a"}, {"input": "a.txt"}):
        with pytest.raises(UsageError, match="both a list of texts and"):
            attnviz_api.explain(TURNS, **more)
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps(TURNS))
    for command in ("self", "explain", "heads", "cross"):
        done = attnviz(command, "--input", file)
        assert done.status > 0
        assert not done.out
        assert "messages are read by a chat template: add --chat" in done.err


def test_the_command_writes_and_shows_the_whole(folder_of, tmp_path):
    picture = tmp_path / "a.svg"
    asked = ("--model", folder_of("gpt2"), "--generate", 4, "-f", "json")
    done = attnviz("self", PROMPT, *asked, "--heatmap", picture)
    assert done.status == 0
    found = done.json()
    assert found["text"].startswith(PROMPT)
    assert found["provenance"]["settings"]["output tokens"] <= 4
    assert 'id="division"' in picture.read_text()
