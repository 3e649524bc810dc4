"""Words over patches, against transformers' own weights."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoProcessor, LlavaForConditionalGeneration

from attnviz.core.errors import AttentionError, InputError, ModelError
from attnviz.models.hugging_face.vision.picture_text import load_picture_text_model
from tests.hugging_face.ask import look
from tests.hugging_face.tiny_vision import VISION_BUILDERS, picture
from tests.precision import both, check_as_near

TEXT = "The red car is fast"
TEMPLATE = (
    "{% for message in messages %}USER: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}{% endfor %}"
    "{% endfor %} ASSISTANT:"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return VISION_BUILDERS["llava"](tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module")
def llava(folder):
    return load_picture_text_model(str(folder), device="cpu")


def own_weights(folder, prompt):
    """transformers' eager weights of the tokens of the text over those of the picture; exactly."""
    model = LlavaForConditionalGeneration.from_pretrained(folder, attn_implementation="eager")
    processor = AutoProcessor.from_pretrained(folder)
    inputs = processor(text=prompt, images=picture(), return_tensors="pt")
    patch = (inputs["input_ids"][0] == processor.image_token_id).numpy()

    def read(model):
        given = inputs | {"pixel_values": inputs["pixel_values"].to(model.dtype)}
        with torch.no_grad():
            weights = torch.cat(model(**given, output_attentions=True).attentions).numpy()
        return [weights[:, :, ~patch][..., patch]]

    return both(model.eval(), read)


def test_words_over_patches_equal_what_transformers_hands_over(folder, llava):
    found = look(llava, picture(), TEXT)
    check_as_near([found.weights], *own_weights(folder, f"<image>\n{TEXT}"))
    assert found.main.stream == "text-to-picture"
    assert [token.text for token in found.main.key_tokens[:5]] == [
        "0,0",
        "0,1",
        "0,2",
        "0,3",
        "1,0",
    ]
    words = [found.text[token.start : token.end] for token in found.main.query_tokens]
    assert "".join(words).split() == ["".join(TEXT.split())]


def test_a_chat_template_is_used_where_there_is_one(folder, llava, monkeypatch):
    monkeypatch.setattr(llava.processor, "chat_template", TEMPLATE)
    found = look(llava, picture(), TEXT)
    prompt = f"USER: <image> {TEXT} ASSISTANT:"
    check_as_near([found.weights], *own_weights(folder, prompt))
    assert found.text == f"USER:  {TEXT} ASSISTANT:"


def test_tokens_that_are_no_patches_are_refused(llava):
    inputs = {"pixel_values": torch.zeros(1, 3, 32, 32)}
    with pytest.raises(AttentionError, match=r"makes 9 tokens of a picture of 4 × 4 patches"):
        llava.grid(inputs, 9)
    assert llava.grid(inputs, 17) == (4, 4)
    assert llava.grid({"image_grid_thw": torch.tensor([[1, 4, 6]])}, 24) == (4, 6)


def test_a_blank_text_is_refused(llava):
    with pytest.raises(InputError, match="blank"):
        look(llava, picture(), " ")


def test_a_text_model_reads_no_picture(folder_of):
    with pytest.raises(ModelError, match=r"leave --text out, or use a model of LLaVA's kind"):
        load_picture_text_model(str(folder_of("bert")), device="cpu")
