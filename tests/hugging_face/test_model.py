"""What a model refuses to read, and what a decoder reads."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

import attnviz
from attnviz.core.errors import AttentionError, InputError, ModelError
from attnviz.models.hugging_face.capture.kernel import eager_copy
from attnviz.models.hugging_face.inputs import generation
from attnviz.models.hugging_face.load.family import check_family
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import attend, cross
from tests.hugging_face.tiny_families import EVERY
from tests.hugging_face.tiny_models import but_slow, byte_pieces, two_models, word_pieces
from tests.precision import both, check_as_near


@pytest.mark.parametrize(("kind", "longest"), [("bert", 32), ("roberta", 32), ("gpt2", 64)])
def test_a_text_may_fill_the_model(kind, longest, loaded):
    model = loaded(kind)
    around = len(model.tokenizer("a")["input_ids"]) - 1
    fits = "a" * (longest - around) if kind != "bert" else "the " * (longest - around)
    if kind != "bert":
        fits = " ".join("a" * ((longest - around + 1) // 2))
    while len(model.tokenizer(fits)["input_ids"]) < longest:
        fits += "."
    assert len(attend(model, fits).tokens) == longest
    with pytest.raises(InputError, match=rf"is {longest + 1} tokens long .*at most {longest}"):
        attend(model, fits + ".")


def test_blank_and_long_texts_and_odd_models_are_refused(loaded, copy_of, monkeypatch):
    for given in ("source", "target"):
        texts = {"source": "a", "target": "a"} | {given: "☃" * 40}
        with pytest.raises(InputError, match=r"tokens long and .* reads at most 64"):
            cross(loaded("bart"), texts["source"], texts["target"])
    for kind, family in (("bert", "encoder-only"), ("llama", "decoder-only")):
        with pytest.raises(AttentionError, match=rf"is {family} .*ask for self-attention, or use"):
            cross(loaded(kind), "a", "b")
    model = loaded("bart")
    for ask in (lambda text: attend(model, text), lambda text: cross(model, "a", text)):
        with pytest.raises(InputError, match=r"blank"):
            ask("  ")
    headless = replace(loaded("bart"), can_generate=False)
    with pytest.raises(ModelError, match=r"no language-model head .*give a target"):
        cross(headless, "a")
    assert cross(headless, "a", "b").main.stream == "cross"
    from transformers import BertConfig, EncoderDecoderConfig, NystromformerConfig

    halves = NystromformerConfig(), BertConfig()
    with pytest.raises(AttentionError, match="landmarks"):
        check_family(EncoderDecoderConfig.from_encoder_decoder_configs(*halves), 1)
    folder = copy_of("bert")
    byte_pieces().save_pretrained(folder)
    model = load_model(str(folder), device="cpu")
    with pytest.raises(ModelError, match=r"does not belong .*the model knows 0 to 25"):
        attend(model, "professor")
    model = loaded("m2m_100")
    for one in (model.model.config, model.model.generation_config):
        monkeypatch.setattr(one, "decoder_start_token_id", None)
    with pytest.raises(ModelError, match=r"'m2m_100' does not say how it starts"):
        cross(model, "a", "b")


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_a_decoder_of_an_encoders_kind(kind, tmp_path):
    model = load_model(str(two_models(tmp_path, kind)), device="cpu")
    text, target = "The red car is fast", "the car"
    found, alone = cross(model, text, target), attend(model, text)
    decoder = generation.shift_target(model.model, model.tokenizer, target)
    inputs = model.tokenizer(text, return_tensors="pt") | {
        "decoder_input_ids": torch.tensor([decoder.ids])
    }

    def read(one):
        with torch.no_grad():
            output = one(**inputs, output_attentions=True)
        names = ("cross", "encoder", "decoder", "encoder")
        return [torch.cat(output[f"{name}_attentions"]).numpy() for name in names]

    weights = [found.map_of(name).weights for name in ("cross", "encoder", "decoder")]
    check_as_near([*weights, alone.weights], *both(eager_copy(model.model), read))


@pytest.mark.parametrize("positions", [(16, 40), (40, 16)])
def test_two_models_read_what_both_read(positions, tmp_path):
    model = load_model(str(two_models(tmp_path, "Bert", positions)), device="cpu")
    with pytest.raises(InputError, match=r"the text is 17 tokens long and .* reads at most 16"):
        attend(model, "the " * 15)


DEEP = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = {"vocab_size": 26, **DEEP}
NOT_NAMED = {
    "flava": lambda: transformers.FlavaConfig(
        text_config=WORDS, image_config=DEEP, multimodal_config=DEEP
    ),
    "csm": lambda: transformers.CsmConfig(
        text_vocab_size=26, vocab_size=9, num_codebooks=2, intermediate_size=24, head_dim=8,
        num_key_value_heads=2, **DEEP,
        depth_decoder_config={"hidden_size": 32, "num_hidden_layers": 1, "num_codebooks": 2,
                              "backbone_hidden_size": 32, "vocab_size": 9},
        codec_config={"model_type": "mimi", "hidden_size": 16, "num_filters": 2,
                      "num_hidden_layers": 1, "codebook_dim": 16, "upsample_groups": 16,
                      "vector_quantization_hidden_dimension": 16},
    ),
    "fastspeech2_conformer": lambda: transformers.FastSpeech2ConformerConfig(
        vocab_size=26, hidden_size=32, encoder_layers=2, decoder_layers=2,
        encoder_linear_units=24, decoder_linear_units=24, speech_decoder_postnet_units=16,
        pitch_predictor_channels=16, energy_predictor_channels=16, duration_predictor_channels=16,
    ),
}  # fmt: skip
"""Models of texts and more whose embeddings transformers does not find."""
TWO_TOWERS = [
    name for name, row in EVERY.items() if row.kind == "image and text" and name != "tipsv2"
]


@pytest.mark.parametrize("name", but_slow([*TWO_TOWERS, *NOT_NAMED], ("clip", "flava")))
@pytest.mark.usefixtures("silence")
def test_a_model_in_memory_reads_its_text(name):
    if name in NOT_NAMED:
        config = NOT_NAMED[name]()
    else:
        config = transformers.CONFIG_MAPPING[name](**deepcopy(EVERY[name].sizes))
    torch.manual_seed(0)
    model = transformers.MODEL_MAPPING[type(config)]._from_config(config).eval()
    part, tokenizer = getattr(model, "text_model", model), word_pieces()
    with torch.no_grad():
        for weights in part.parameters():
            weights.normal_(std=0.3) if weights.ndim > 1 else None
        ids = torch.tensor([tokenizer("The red car")["input_ids"]])
        output = eager_copy(part)(input_ids=ids, output_attentions=True)
    found = attnviz.attend("The red car", model=model, tokenizer=tokenizer)
    layers = getattr(output, "attentions", None) or output.encoder_attentions
    np.testing.assert_allclose(found.weights, torch.cat(layers).numpy(), atol=1e-5)
    with pytest.raises(ModelError, match=r"no head that gives classes or tokens|writes a target"):
        attnviz.explain("The red car", model=model, tokenizer=tokenizer)


def test_a_given_target_is_shifted_and_kept(loaded):
    for kind, start in (("t5", "<pad>"), ("bart", "</s>"), ("marian", "<pad>")):
        found = cross(loaded(kind), "The car", "La voiture").main.query_tokens
        assert (found[0].text, found[0].special) == (start, True)
        words = "".join("La voiture"[token.start : token.end] for token in found)
        assert words.replace(" ", "") == "Lavoiture"


@pytest.mark.core
@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_without_a_target_the_model_writes_one(kind, loaded, monkeypatch):
    monkeypatch.setattr(generation, "LONGEST", 9)
    model = loaded(kind)
    written = cross(model, "The red car is fast")
    inputs = model.tokenizer("The red car is fast", return_tensors="pt")
    ids = model.model.generate(**inputs, do_sample=False, max_new_tokens=9, use_cache=False)[0]
    assert written.target == model.tokenizer.decode(ids, skip_special_tokens=True).strip()
    assert any("the model wrote the target" in note for note in written.provenance.notes)
    ids = ids[:-1] if ids[-1] == model.tokenizer.eos_token_id else ids
    own = eager_copy(model.model)

    def read(own):
        output = own(**inputs, decoder_input_ids=ids[None], output_attentions=True)
        return [torch.cat(list(output.cross_attentions)).detach()]

    check_as_near([written.main.weights], *both(own, read))


FAILURES = {
    r"^the memory ran out: .*shorter text": RuntimeError("can't allocate memory: 9 bytes\nat"),
    r"cannot run on this text: You have to give$": ValueError("You have to give\nsomething else"),
}


@pytest.mark.parametrize("said", FAILURES)
def test_a_failing_model_is_one_line(said, loaded, monkeypatch):
    def fail(*_, **__):
        raise FAILURES[said]

    model = loaded("bert")
    monkeypatch.setattr(type(model.model), "forward", fail)
    with pytest.raises(ModelError, match=said) as caught:
        attend(model, "the car")
    assert "\n" not in str(caught.value)
