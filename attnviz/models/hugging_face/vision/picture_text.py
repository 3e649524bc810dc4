"""Models that read a picture and a text in one sequence: which patches each word looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import AttentionError, InputError, ModelError
from attnviz.core.query import Query
from attnviz.core.tokens import patch_tokens
from attnviz.models import attend_each
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.maps import with_routes
from attnviz.models.hugging_face.capture.region import Region
from attnviz.models.hugging_face.inputs.chat import apply_chat_template
from attnviz.models.hugging_face.inputs.tokens import check_text, label_ids
from attnviz.models.hugging_face.load.errors import foreign
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.load.loading import LoadOptions, load_parts, model_class
from attnviz.models.hugging_face.vision.pictures import (
    SIDE,
    check_sides,
    pair,
    picture_of,
    seen_box,
)


@dataclass(frozen=True, slots=True, eq=False)
class PictureTextModel:
    """A pretrained model of pictures and text, as a source of attention."""

    name: str  # what it was asked for as
    model: Any  # on its device, in evaluation mode
    processor: Any  # its tokenizer and image processor in one
    provenance: Provenance  # what is made of the model is added for each picture

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The attention of each text's tokens over the patches of the picture before them.

        Rows sum to the share that goes to the picture; the rest goes to the text.
        """
        return attend_each(self._attend_one, queries)

    def _attend_one(self, query: Query) -> Attention:
        picture = picture_of(query, self.name).image
        check_text(query.text)
        with quiet():
            prompt = self.prompt(query.text)
            check_sides(self.processor.image_processor)
            with foreign(f"the processor of '{self.name}' fails"):
                inputs = self.processor(text=prompt, images=picture, return_tensors="pt")
            device, dtype = self.model.device, self.model.dtype
            inputs = {
                name: row.to(device, dtype if row.is_floating_point() else row.dtype)
                for name, row in inputs.items()
            }
            ids = inputs["input_ids"][0].tolist()
            places = [place for place, number in enumerate(ids) if number == self.image_token]
            rows, columns = self.grid(inputs, len(places))
            sides = {"self": (len(ids), len(ids))}
            found = capture(self.model, inputs, sides, region=Region(max_size=len(ids)))
        # Where there is a class token it comes first.
        keys = places[len(places) - rows * columns :]
        queries = [place for place in range(len(ids)) if place not in set(places)]
        read, tokens = self.tokens(prompt, [ids[place] for place in queries])
        maps = tuple(
            AttentionMap(
                "text-to-picture",
                tokens,
                patch_tokens(rows, columns),
                item.weights[:, :, np.array(queries)[:, None], np.array(keys)],
                layers=item.layers,
                key_side=SIDE,
            )
            for item in found
        )
        provenance = with_routes(self.provenance, [item.route for item in found])
        settings = {**provenance.settings, "patches": f"{rows} × {columns}"}
        seen = seen_box(self.processor.image_processor, picture, None)
        return Attention(maps, replace(provenance, settings=settings), text=read, seen=seen)

    @property
    def image_token(self) -> int:
        """The number of the token that stands for a patch."""
        config = self.model.config
        number = getattr(config, "image_token_id", None)
        return int(config.image_token_index if number is None else number)

    def prompt(self, text: str) -> str:
        """The picture, then the text, as the model was taught to read them."""
        if getattr(self.processor, "chat_template", None):
            content = [{"type": "image"}, {"type": "text", "text": text}]
            return apply_chat_template(self.processor.tokenizer, content, self.name, self.processor)
        return f"{self.processor.image_token}\n{text}"

    def grid(self, inputs: dict[str, Any], count: int) -> tuple[int, int]:
        """How many patches a picture has from top to bottom and from left to right."""
        config = self.model.config.vision_config
        if "image_grid_thw" in inputs:
            merged = getattr(config, "spatial_merge_size", 1)
            _, rows, columns = (int(side) for side in inputs["image_grid_thw"][0])
            rows, columns = rows // merged, columns // merged
        else:
            high, wide = pair(config.patch_size)
            height, width = inputs["pixel_values"].shape[-2:]
            rows, columns = height // high, width // wide
        if count - rows * columns not in (0, 1) or not count:
            raise AttentionError(
                f"'{self.name}' ({self.model.config.model_type}) makes {count} tokens of a picture "
                f"of {rows} × {columns} patches: they cannot be put back into it"
            )
        return rows, columns

    def tokens(self, prompt: str, ids: list[int]) -> tuple[str, tuple[Token, ...]]:
        """What is read beside the picture, and its tokens."""
        text = prompt.replace(self.processor.image_token, "")
        return text, label_ids(self.processor.tokenizer, ids, text)


def load_picture_text_model(name: str, **options: Any) -> PictureTextModel:
    """A pretrained model of pictures and text; options are the fields of `LoadOptions`."""
    parts = load_parts(name, LoadOptions(**options), _load_both, model_class)
    config = parts.model.config
    reads_both = hasattr(config, "vision_config") and hasattr(parts.reader, "image_token")
    if not reads_both or not (hasattr(config, "image_token_id") or "image_token_index" in config):
        raise ModelError(
            f"'{name}' ({config.model_type}) does not read a picture and a text in one sequence: "
            "leave --text out, or use a model of LLaVA's kind"
        )
    return PictureTextModel(name, parts.model, parts.reader, parts.provenance)


def _load_both(folder: Path, name: str) -> Any:
    import transformers

    auto: Any = transformers.AutoProcessor
    with foreign(f"the processor of '{name}' cannot be loaded"):
        return auto.from_pretrained(folder, local_files_only=True)
