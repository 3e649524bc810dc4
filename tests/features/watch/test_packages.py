"""Models of other packages with random weights; each test runs where its package is installed."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnviz import watch
from attnviz.core.errors import AttentionError
from attnviz.features.watch.maps import word_maps
from tests.features.watch.oracle import agree, written_out
from tests.features.watch.rows import DOCUMENT, LINEAR, ROWS, Row, document

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def made(row: Row) -> Any:
    """The model of a row, with its inputs."""
    package = pytest.importorskip(row.imported)
    torch.manual_seed(1)
    return row.make(package).eval(), *row.inputs()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_model_is_seen_as_it_attends_and_keeps_its_bits(row):
    result, off = agree(*made(row), torch.float32, row.exact, row.others, row.windows)
    streams = " ".join(sorted({item.stream for item in result.maps}))
    assert (streams, sum(len(item.layers) for item in result.maps)) == row.seen
    assert off < 1e-5
    assert "checked" in result.provenance.settings


@pytest.mark.parametrize("row", [row for row in ROWS if row.half], ids=str)
def test_a_model_in_bfloat16_is_seen_to_a_hundredth(row):
    _, off = agree(*made(row), torch.bfloat16, torch.bfloat16, row.others)
    assert off < 1e-2


@pytest.mark.parametrize("row", LINEAR, ids=str)
def test_without_a_softmax_over_keys_there_is_no_map(row):
    model, args, kwargs = made(row)
    with torch.no_grad(), watch(model) as seen:
        model(*args, **kwargs)
    with pytest.raises(AttentionError, match=r"linear attention|no attention was seen"):
        seen.attention()


def test_a_word_s_map_is_what_places_of_a_unet_give_it():
    model, args, _ = made(next(row for row in ROWS if row.name == "UNet2DConditionModel"))
    with torch.no_grad():
        with watch(model, tokens=["<s>", "a", "red", "boat", "on", "water", "</s>"]) as seen:
            model(*args)
        with written_out() as noted:
            model(*args)
    _, wanted, names = seen._facts
    modules, steps, maps = word_maps(seen.log, 0, wanted, names, "boat", 1.0)
    cross = [weights[:8].mean(0) for weights in noted if weights.shape[-1] == 7]
    assert (len(modules), steps, len(cross)) == (4, ["1"], 4)
    assert maps.shape == (4, 1, 16, 16)
    for found, weights in zip(maps[:, 0], cross, strict=True):
        side = int(len(weights) ** 0.5)
        truth = weights[:, 3].reshape(side, side).repeat(16 // side, 0).repeat(16 // side, 1)
        assert np.abs(found - truth).max() < 1e-5


@pytest.mark.parametrize(("name", "split"), [("SD3", -7), ("Flux", 7)])
def test_quarters_of_a_joint_sequence_are_of_its_map(name, split):
    model, args, kwargs = made(next(row for row in ROWS if row.name.startswith(name)))
    with torch.no_grad(), watch(model) as whole, watch(model, split=split) as cut:
        model(*args, **kwargs)
    (weights,) = (item.weights for item in whole.attention().maps)
    parts = {item.stream: item.weights for item in cut.attention().maps}
    text, image = slice(7), slice(7, None)
    if split < 0:
        text, image = slice(-7, None), slice(-7)
    assert len(parts) == 4
    assert np.array_equal(parts["image-to-text"], weights[:, :, image, text])
    assert np.array_equal(parts["text-to-image"], weights[:, :, text, image])


class Small(torch.nn.Module):
    """What the training loops train: a layer of torch's own over two numbers a token."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x: Any, labels: Any = None) -> Any:
        loss = (self.head(self.layer(x)).mean((1, 2)) - labels).square().mean()
        return {"loss": loss}


def batches() -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(2)
    return [{"x": torch.randn(5, 8), "labels": torch.randn(())} for _ in range(8)]


def fit_plainly(model: Small, _: Path) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for batch in torch.utils.data.DataLoader(batches(), 2):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()


def fit_with_lightning(model: Small, folder: Path) -> None:
    package = pytest.importorskip("lightning")

    class Module(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def training_step(self, batch: Any, _: int) -> Any:
            return self.inner(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
    trainer = package.Trainer(
        max_epochs=1,
        accelerator="cpu",
        default_root_dir=folder,
        enable_model_summary=False,
        **quiet,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(batches(), 2))


def fit_with_trainer(model: Small, folder: Path) -> None:
    pytest.importorskip("accelerate")
    home = import_module("transformers")
    options = home.TrainingArguments(
        folder, per_device_train_batch_size=2, num_train_epochs=1, report_to=[], use_cpu=True
    )
    home.Trainer(model, options, train_dataset=batches()).train()


LOOPS = [fit_plainly, fit_with_lightning, fit_with_trainer]


@pytest.mark.parametrize("fit", LOOPS)
def test_a_training_loop_is_seen_and_trains_the_same(fit, tmp_path):
    def trained() -> Small:
        torch.manual_seed(1)
        return Small()

    bare, watched, copy = trained(), trained(), trained()
    fit(bare, tmp_path)
    with watch(watched) as seen:
        fit(watched, tmp_path)
    assert all(map(torch.equal, bare.state_dict().values(), watched.state_dict().values()))
    with written_out() as noted:
        fit(copy, tmp_path)
    assert len(noted) == 4
    for one, truth in zip(seen.log.captures, noted, strict=True):
        assert np.abs(one.weights - truth[:2]).max() < 1e-5
    maps = seen.attention().maps
    assert [one.layers for one in maps] == [("layer.self_attn",)] * 4
    assert [one.stream.split(" · ")[0] for one in maps] == [f"call {n}" for n in (1, 2, 3, 4)]


def test_the_documentation_lists_the_forty_models():
    assert len({(row.package, row.name) for row in ROWS}) == len(ROWS) >= 40
    assert len({row.package for row in ROWS}) >= 12
    text = DOCUMENT.read_text(encoding="utf-8")
    assert "\n".join(document()) in text, "run: python -m tests.features.watch.rows"
