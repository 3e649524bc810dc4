"""Small video models with random weights, and films whose frames all differ."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "image_size": 32,
}
CUT = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
LABELS = {"id2label": {0: "roll", 1: "jump"}}


def frames(count: int, width: int = 48, height: int = 40) -> list[Image.Image]:
    """A disc that moves over a ground that fades."""
    made = []
    for number in range(count):
        down, across = np.mgrid[0:height, 0:width]
        disc = (across - number * width / count) ** 2 + (down - height / 2) ** 2 < 64
        layers = np.stack([down / height, across / width, disc.astype(float)], axis=-1)
        made.append(Image.fromarray((layers * 255).astype(np.uint8)))
    return made


def model_of(kind: str) -> Any:
    """A model in memory whose random weights tell heads and places apart."""
    torch.manual_seed(0)
    tubes = {"num_frames": 4, "tubelet_size": 2, "patch_size": 8}
    made = {
        "videomae": lambda: transformers.VideoMAEForVideoClassification(
            transformers.VideoMAEConfig(**SIZES, **tubes, **LABELS)
        ),
        "vivit": lambda: transformers.VivitModel(
            transformers.VivitConfig(**SIZES, num_frames=4, tubelet_size=[2, 8, 8])
        ),
        "timesformer": lambda: transformers.TimesformerModel(
            transformers.TimesformerConfig(**SIZES, num_frames=3, patch_size=8)
        ),
        "joint": lambda: transformers.TimesformerModel(
            transformers.TimesformerConfig(
                **SIZES, num_frames=3, patch_size=8, attention_type="joint_space_time"
            )
        ),
        "vjepa2": lambda: transformers.VJEPA2Model(
            transformers.VJEPA2Config(
                crop_size=32,
                patch_size=8,
                frames_per_clip=4,
                tubelet_size=2,
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                pred_hidden_size=48,
                pred_num_attention_heads=4,
                pred_num_hidden_layers=1,
            )
        ),
    }[kind]()
    with torch.no_grad():
        for weights in made.parameters():
            weights.copy_(0.3 * torch.randn_like(weights) + (weights if weights.ndim == 1 else 0))
    return made.eval()


class FilmReader:
    """What reads films where torchvision, which V-JEPA's own processor needs, is not there."""

    def __init__(self) -> None:
        self.inner = processor()
        self.size, self.crop_size = self.inner.size, self.inner.crop_size
        self.do_center_crop = True

    def __call__(self, videos: Any, **options: Any) -> dict[str, Any]:
        return {"pixel_values_videos": self.inner([*videos], **options)["pixel_values"]}


def processor() -> Any:
    return VideoMAEImageProcessorPil(**CUT)


def saved(kind: str, folder: Path) -> Path:
    model_of(kind).save_pretrained(folder)
    processor().save_pretrained(folder)
    return folder
