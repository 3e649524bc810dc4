"""Models of forms, which ask where on a page each token stands, read a text that stands nowhere."""

import numpy as np
import torch
from transformers import BrosConfig, BrosModel

from attnviz import attend, attend_many
from tests.hugging_face.tiny_models import WIDE, word_pieces


def test_a_text_without_places_has_boxes_of_size_0_and_a_note():
    torch.manual_seed(0)
    config = BrosConfig(vocab_size=26, max_position_embeddings=40, **{**WIDE, "hidden_size": 64})
    model, tokenizer = BrosModel(config).eval(), word_pieces()
    texts = ["the red car", "the professor", "the paper is red"]
    found = [attend(text, model=model, tokenizer=tokenizer) for text in texts]
    together = attend_many(texts, model=model, tokenizer=tokenizer)
    for text, alone, beside in zip(texts, found, together, strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        boxes = torch.zeros(*inputs["input_ids"].shape, 4, dtype=torch.long)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        with torch.no_grad():
            given = model(ids, bbox=boxes, attention_mask=mask, output_attentions=True)
        expected = torch.cat(given.attentions).numpy()
        np.testing.assert_allclose(alone.weights, expected, atol=1e-5)
        np.testing.assert_allclose(beside.weights, expected, atol=1e-5)
        assert any("boxes are 0" in note for note in alone.provenance.notes)
