"""A training run that is sampled: what is kept and logged, and that the run is as without it."""

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

import attnviz as package
from attnviz import callbacks, load, watch
from attnviz.callbacks import Recorder, open_loggers, sample_files
from attnviz.core.errors import HealthError, UsageError
from attnviz.features.compare.report import HISTORY
from attnviz.features.compare.request import read_sample
from tests.features.watch.distributed import WAYS
from tests.features.watch.health_runs import KINDS, is_right
from tests.features.watch.health_runs import train as train_kind
from tests.patience import HUNG

TOKENS, LENGTH = 9, 6
PROBE = torch.arange(LENGTH)[None]


class Small(nn.Module):
    """Two layers of two heads, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(TOKENS, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(8, TOKENS)

    def forward(self, ids: Any, labels: Any = None) -> Any:
        scores = self.out(self.encoder(self.tokens(ids)))
        if labels is None:
            return scores
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())}


def train(model: nn.Module, steps: range, recorder: Any = None) -> list[float]:
    """A plain loop; answers its losses."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in steps:
        if recorder is not None:
            recorder.step(step)
        ids = torch.randint(TOKENS, (4, LENGTH))
        loss = model(ids, ids.roll(1, 1))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def run(folder: Path, steps: range = range(5), every: int = 2, **options: Any) -> Recorder:
    model = Small()
    recorder = Recorder(model, PROBE, folder, every=every, **options)
    train(model, steps, recorder)
    return recorder


@pytest.mark.slow
def test_a_sampled_run_is_the_bare_run_to_the_bit(tmp_path):
    bare, sampled = Small(), Small()
    sampled.encoder.layers[0].eval()  # a part may be in a mode of its own
    bare.encoder.layers[0].eval()
    losses = []
    for model in (bare, sampled):
        torch.manual_seed(1)
        recorder = Recorder(model, PROBE, tmp_path, every=1) if model is sampled else None
        losses.append(train(model, range(4), recorder))
        losses.append([torch.rand(()).item()])
    assert losses[:2] == losses[2:]
    for one, other in zip(bare.parameters(), sampled.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
    assert [part.training for part in bare.modules()] == [
        part.training for part in sampled.modules()
    ]
    assert torch.is_grad_enabled()


@pytest.mark.slow
def test_a_sample_is_what_watching_at_that_step_shows(tmp_path):
    model = Small()
    train(model, range(3))
    path = Recorder(model, PROBE, tmp_path / "new" / "samples", every=3, tokens="abcdef").step(3)
    assert path is not None
    assert path.relative_to(tmp_path).as_posix() == "new/samples/step-00000003.npz"
    (sample,) = load(path)
    with watch(model.eval(), tokens="abcdef") as seen, torch.no_grad():
        model(PROBE)
    assert np.array_equal(sample.weights, seen.attention().weights)
    assert sample.tokens == tuple("abcdef")
    assert (sample.id, sample.provenance.settings["step"]) == ("step 3", 3)
    recorder = run(tmp_path, range(3), max_size=3)
    (sample,) = load(tmp_path / "step-00000002.npz")
    assert (sample.main.blocks, sample.weights.shape) == ((2, 2), (2, 2, 3, 3))
    report = recorder.study.report()
    assert "maps hold blocks of 2 × 2 tokens: measures are of blocks" in report.notes
    wide = [entropy(row) for row in sample.weights[0, 0]]
    assert report.values["entropy"][-1, 0] == pytest.approx(np.mean(wide), abs=1e-5)


@pytest.mark.slow
def test_each_step_is_sampled_once_and_the_last_too(tmp_path):
    recorder = Recorder(Small(), PROBE, tmp_path, every=2)
    assert [recorder.step(step) is not None for step in (0, 0, 1, 2, 2, 3, 4)] == [
        *(True, False, False, True, False, False, True)
    ]
    assert [*sample_files(tmp_path)] == [0, 2, 4]
    recorder = run(tmp_path / "last", range(6), every=4)
    path = recorder.finish()
    assert path is not None
    assert recorder.finish() is None
    assert [*sample_files(tmp_path / "last")] == [0, 4, 5]
    assert Recorder(Small(), PROBE, tmp_path / "other").finish() is None


def entropy(row: np.ndarray) -> float:
    return -sum(p * math.log(p) for p in row.astype(float) if p > 0)


@pytest.mark.slow
@pytest.mark.core
def test_measures_and_drift_are_those_of_a_slow_loop(tmp_path):
    recorder = run(tmp_path, range(5))
    (before,), (after,) = (load(path) for path in [*sample_files(tmp_path).values()][-2:])
    found = recorder.study.values[4]
    assert len(found) == 4
    for (_, layer, head), values in found.items():
        place = after.main.layers.index(layer), after.main.heads.index(head)
        p, q = before.weights[place].astype(float), after.weights[place].astype(float)
        p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
        drift = [
            entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2 for a, b in zip(p, q, strict=True)
        ]
        assert values["drift"] == pytest.approx(np.mean(drift), abs=1e-6)
        assert values["drift"] > 0
        assert values["entropy"] == pytest.approx(np.mean([entropy(row) for row in q]), abs=1e-5)
        before_it = [q[row, row - 1] for row in range(1, LENGTH)]
        assert values["previous-token"] == pytest.approx(np.mean(before_it), abs=1e-5)
        assert values["sink"] == pytest.approx(q.mean(0).max(), abs=1e-5)
    assert all(math.isnan(values["drift"]) for values in recorder.study.values[0].values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probe", "call"),
    [
        (PROBE, None),
        ({"ids": PROBE}, None),
        ((PROBE, None), None),
        ("ids", lambda model, batch: model(PROBE)),
    ],
)
def test_a_probe_is_called_as_its_kind_says(probe, call, tmp_path):
    model = Small()
    paths = [
        Recorder(model, *given, every=1).step(0)
        for given in ((PROBE, tmp_path / "a"), (probe, tmp_path / "b"))
        if given[0] is PROBE or call is None
    ]
    if call is not None:
        paths.append(Recorder(model, probe, tmp_path / "b", every=1, call=call).step(0))
    first, second = (load(path)[0] for path in paths if path is not None)
    assert np.array_equal(first.weights, second.weights)


# --- runs that go on, and samples that fail


@pytest.mark.slow
def test_a_run_that_is_resumed_goes_on_in_its_folder(tmp_path):
    run(tmp_path, range(7))
    assert [*sample_files(tmp_path)] == [0, 2, 4, 6]
    model = Small()
    later = Recorder(model, PROBE, tmp_path, every=2)
    with pytest.warns(UserWarning, match=r"holds samples of later steps \(to 6\) of an earlier"):
        later.step(4)
    # Its drift is from the sample of the run before.
    assert all(values["drift"] > 0 for values in later.study.values[4].values())
    assert [*sample_files(tmp_path)] == [0, 2, 4, 6]
    (sample,) = load(tmp_path / "step-00000004.npz")
    (first,) = load(tmp_path / "step-00000000.npz")
    assert np.array_equal(sample.weights, first.weights)  # the same fresh model
    run(tmp_path / "probe", range(1))
    other = Recorder(Small(), PROBE[:, :4], tmp_path / "probe", every=2)
    other.step(2)
    assert all(math.isnan(values["drift"]) for values in other.study.values[2].values())
    assert any("have no drift" in note for note in other.study.notes)


def without_memory(model: Any, batch: Any) -> Any:
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


class Sealed:
    """Whatever is asked of it raises."""

    def _raise(self, *_: Any) -> Any:
        raise ValueError("do not touch")

    __getattr__ = __bool__ = __len__ = __eq__ = __hash__ = __iter__ = __contains__ = _raise  # type: ignore[assignment]
    __repr__ = __str__ = __call__ = __getitem__ = _raise  # type: ignore[assignment]


@pytest.mark.slow
def test_errors_of_samples_are_noted_and_end_no_training(tmp_path):
    model = Small()
    recorder = Recorder(model, PROBE, tmp_path, every=1, call=without_memory)
    noted = r"no sample at step 0: OutOfMemoryError: CUDA out of memory"
    with pytest.warns(UserWarning, match=noted) as found:
        assert len(train(model, range(3), recorder)) == 3
    assert len(found) == 1
    assert model.training
    recorder.call = lambda model, batch: model(batch)
    assert recorder.step(3) is not None
    for layer in model.encoder.layers:
        torch.nn.init.constant_(layer.self_attn.in_proj_weight, math.nan)
    with pytest.warns(UserWarning, match="no sample at step 4: .* is NaN or infinite"):
        assert recorder.step(4) is None
    assert [*sample_files(tmp_path)] == [3]
    with pytest.warns(UserWarning, match="no sample at step 0: no attention was seen"):
        Recorder(nn.Linear(2, 2), torch.ones(1, 2), tmp_path / "other", every=1).step(0)
    with pytest.raises(UsageError, match="every=0 is too small: 1 or more"):
        Recorder(model, PROBE, tmp_path, every=0)


def test_what_draws_a_sample_finds_what_this_process_finds(tmp_path, monkeypatch):
    started = Mock()
    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    callbacks._draw(tmp_path / "step-1.npz")
    places = started.call_args.kwargs["env"]["PYTHONPATH"].split(os.pathsep)
    assert places == [one for one in sys.path if one]
    assert started.call_args.args[0][-3] == str(tmp_path / "step-1.png")


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [{"probe_batch": Sealed()}, {"call": Sealed()}, {"loggers": Sealed()}, {"model": Sealed()}],
)
def test_whatever_a_recorder_is_given_a_training_runs_on(given, tmp_path):
    options = {"model": Small(), "probe_batch": PROBE, "folder": tmp_path, "every": 1} | given
    recorder = Recorder(**options)
    with pytest.warns(UserWarning, match="no sample at step 0: ValueError: do not touch") as found:
        assert len(train(Small(), range(3), recorder)) == 3
    assert len(found) == 1
    callback = callbacks.AttentionCallback(PROBE, tmp_path / "other", every=1)
    state = SimpleNamespace(is_world_process_zero=True, global_step=0)
    with pytest.warns(UserWarning, match="no sample at step 0: ValueError: do not touch"):
        callback.on_train_begin(None, state, None, model=Sealed())
    callback.on_step_end(None, state, None)


# --- loggers


class Writer:
    """SummaryWriter, as far as it is used."""

    def __init__(self) -> None:
        self.scalars: dict[str, tuple[float, int]] = {}
        self.images: dict[str, tuple[Any, int]] = {}

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars[tag] = value, step

    def add_image(self, tag: str, image: Any, step: int, dataformats: str) -> None:
        assert dataformats == "HWC"
        self.images[tag] = image, step


class OwnLogger:
    """An object of a user's own."""

    def __init__(self) -> None:
        self.taken = list[Any]()

    def log(self, scalars: dict[str, float], picture: Path | None, step: int) -> None:
        self.taken.append((scalars, picture and picture.read_bytes()[:4], step))


class OfLightning:
    """A logger of Lightning before one of the others."""

    run_id = "a"

    def __init__(self, experiment: Any, *, images: bool = False) -> None:
        self.experiment, self.metrics, self.images = experiment, list[Any](), list[Any]()
        if images:
            self.log_image = lambda key, images, step: self.images.append((key, step))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.metrics.append((metrics, step))


NAME = "attention/drift/encoder.layers.0.self_attn.1"


@pytest.mark.slow
def test_measures_and_a_picture_go_to_every_kind_of_logger(tmp_path, monkeypatch):
    client = SimpleNamespace(log_artifact=lambda run, file, place: client.files.append((run, file)))
    client.files = []
    lightning = [
        OfLightning(Writer()),
        OfLightning(client),
        OfLightning(SimpleNamespace(), images=True),
    ]
    writer, wandb, mlflow = Writer(), Mock(spec=["log"]), Mock(spec=["log_metrics", "log_artifact"])
    tracked = type("Run", (), {"__module__": "trackio.run", "log": Mock()})()
    trackio = ModuleType("trackio")
    trackio.Image = lambda file: ("image", file)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    own = OwnLogger()
    loggers = [writer, wandb, mlflow, *lightning, tracked, own]
    recorder = run(tmp_path, range(3), loggers=loggers)
    recorder.finish()
    values = recorder.study.values[2]
    drift = values["self", "encoder.layers.0.self_attn", "1"]["drift"]
    score = values["self", "encoder.layers.0.self_attn", "1"]["score-max"]
    assert writer.scalars[NAME] == (drift, 2)
    assert writer.scalars[NAME.replace("drift", "score-max")] == (score, 2)
    assert len(writer.scalars) == 4 * len(callbacks.LOGGED)
    assert writer.images["attention/heads"][1] == 2
    assert writer.images["attention/heads"][0].shape[2] == 3
    logged = [one.args[0] for one in wandb.log.call_args_list]
    numbers = [one for one in logged if "attention/heads" not in one]
    pictures = [one for one in logged if "attention/heads" in one]
    assert (numbers[1][NAME], numbers[1]["attention/step"]) == (drift, 2)
    assert all(one.kwargs == {"commit": False} for one in wandb.log.call_args_list)
    assert sorted(one["attention/step"] for one in pictures) == [0, 2]
    assert NAME not in numbers[0]  # there was nothing to drift from
    assert not any(math.isnan(one) for one in list(numbers[0].values()) if isinstance(one, float))
    assert [one.kwargs["step"] for one in mlflow.log_metrics.call_args_list] == [0, 2]
    files = sorted(Path(one.args[0]).name for one in mlflow.log_artifact.call_args_list)
    assert files == ["step-00000000.png", "step-00000002.png"]
    for logger in lightning:
        assert logger.metrics[1] == (mlflow.log_metrics.call_args.args[0], 2)
    assert lightning[0].experiment.images["attention/heads"][1] == 2
    assert {run for run, _ in client.files} == {"a"}
    assert sorted(lightning[2].images) == [("attention/heads", 0), ("attention/heads", 2)]
    assert {one.kwargs["step"] for one in tracked.log.call_args_list} == {0, 2}
    assert [step for scalars, _, step in own.taken if scalars] == [0, 2]
    assert sorted((step, mark) for _, mark, step in own.taken if mark) == [
        (0, b"\x89PNG"),
        (2, b"\x89PNG"),
    ]


def test_verdicts_are_told_once_and_may_end_the_training(tmp_path, capsys):
    told = list[Any]()
    recorder = run(tmp_path / "a", range(6), every=1, loggers=[], on_verdict=told.append)
    recorder.finish()
    now = {(one.name, one.head) for one in recorder.study.report().verdicts}
    assert now <= {(one.name, one.head) for one in told}
    assert re.fullmatch(r"sampling took [\d.]+% of [\d.]+ s\n", capsys.readouterr().err)
    model = Small()
    for layer in model.encoder.layers:
        layer.self_attn.in_proj_weight.data *= 1000
    recorder = Recorder(model, PROBE, tmp_path / "b", every=1, loggers=[], fail_on="collapsed")
    with pytest.raises(HealthError, match=r"head 0: collapsed since step 0 \(entropy 0\.0"):
        recorder.step(0)

    def refuse(one: Any) -> None:
        raise RuntimeError(one.name)

    with pytest.raises(RuntimeError, match="collapsed"):
        Recorder(model, PROBE, tmp_path / "c", every=1, loggers=[], on_verdict=refuse).step(0)
    with pytest.raises(UsageError, match="collapsing"):
        Recorder(model, PROBE, tmp_path / "c", fail_on="collapsing")


def test_tensorboard_and_history_read_what_was_logged(tmp_path):
    recorder = run(tmp_path, range(3), loggers=[])
    again = package.compare(str(tmp_path)).value
    for name in HISTORY:
        np.testing.assert_allclose(again.values[name], recorder.study.report().values[name])
    assert np.isfinite(again.values["score-max"]).all()
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path / "logs")) as writer:
        run(tmp_path / "samples", range(3), loggers=writer).finish()
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(tmp_path / "logs")).Reload()
    assert [one.step for one in events.Scalars(NAME)] == [2]
    assert [one.step for one in events.Images("attention/heads")] == [0, 2]


@pytest.mark.slow
def test_processes_that_share_a_model_sample_as_one(tmp_path):
    script = Path(__file__).with_name("distributed.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG, check=True)
    assert done.stderr.count("sampling took") == len(WAYS)  # only the first process writes
    found = {}
    for way in WAYS:
        assert f"done {way} 0 3" in done.stdout
        files = sample_files(tmp_path / way)
        assert [*files] == [0, 2, 3]
        found[way] = read_sample(files[3])
    for way in ("ddp", "fsdp"):
        assert found[way].main.layers == found["one"].main.layers
        np.testing.assert_allclose(found[way].weights, found["one"].weights, atol=1e-6)
        assert found[way].scores.keys() == found["one"].scores.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_run_gets_its_verdict(kind, tmp_path):
    for seed in range(2):  # `python -m tests.features.watch.health_runs 20` trains twenty
        history = train_kind(seed, tmp_path / str(seed), **KINDS[kind])
        assert is_right(kind, history)


def test_weights_and_biases_itself_takes_what_is_logged(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path) as logged:
        recorder = Recorder(Small(), PROBE, tmp_path / "samples", every=2)
        for step in range(4):
            recorder.step(step)
            logged.log({"loss": 1.0}, step=step)
        recorder.finish()
    assert len([*tmp_path.glob("wandb/offline-*/files/media/images/attention/*.png")]) == 2


def test_names_are_of_characters_that_mlflow_allows(tmp_path):
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            once = self.attend(x, x, x)[0]
            return self.attend(x, once[:, :3], once[:, :3])[0]

    mlflow = Mock(spec=["log_metrics"])
    recorder = Recorder(Twice(), torch.randn(1, 4, 8), tmp_path, every=1, loggers=mlflow)
    recorder.step(0)
    recorder.finish()
    names = list(mlflow.log_metrics.call_args.args[0])
    assert all(re.fullmatch(r"[\w. /-]+", name) for name in names)
    assert len({name.split("/")[2] for name in names}) == 2  # a stream each


def test_loggers_are_found_where_a_run_has_them(monkeypatch):
    assert open_loggers(None) == []
    wandb, mlflow = ModuleType("wandb"), ModuleType("mlflow")
    wandb.run, mlflow.active_run = Mock(spec=["log"]), lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    assert [one.own for one in open_loggers(None)] == [wandb.run]
    mlflow.active_run = lambda: "a run"  # type: ignore[attr-defined]
    assert [one.own for one in open_loggers(None)] == [wandb.run, mlflow]
    writer = Writer()
    integrations = [
        SimpleNamespace(),
        SimpleNamespace(tb_writer=writer),
        SimpleNamespace(_wandb=wandb.run),
        SimpleNamespace(tb_writer=None),
    ]
    trainer = SimpleNamespace(callback_handler=SimpleNamespace(callbacks=integrations))
    assert [one.own for one in open_loggers(trainer)] == [writer, wandb.run]
    assert [one.own for one in open_loggers(SimpleNamespace(loggers=[writer]))] == [writer]
    own = OwnLogger()
    assert open_loggers(own) == [own]
    assert open_loggers([]) == []


# --- trainers


@pytest.mark.slow
def test_a_callback_of_transformers_follows_its_events(tmp_path):
    # The Trainer's own handler calls it; the Trainer itself needs accelerate.
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import CallbackHandler

    callback = callbacks.AttentionCallback(PROBE, tmp_path, every=2)
    assert isinstance(callback, TrainerCallback)
    assert callbacks.AttentionCallback is type(callback)
    model = Small()
    handler = CallbackHandler([callback], model, None, None, None)
    state, control = TrainerState(is_world_process_zero=True), TrainerControl()
    arguments = object.__new__(TrainingArguments)
    handler.on_train_begin(arguments, state, control)
    for step in range(1, 6):
        state.global_step = step
        handler.on_step_end(arguments, state, control)
    handler.on_train_end(arguments, state, control)
    assert [*sample_files(tmp_path)] == [0, 2, 4, 5]
    # Other processes of the run take none.
    other = callbacks.AttentionCallback(PROBE, tmp_path / "other", every=2)
    handler = CallbackHandler([other], model, None, None, None)
    handler.on_train_begin(arguments, TrainerState(is_world_process_zero=False), control)
    handler.on_step_end(arguments, state, control)
    assert not (tmp_path / "other").exists()
    with pytest.raises(UsageError, match="every=0"):
        callbacks.AttentionCallback(PROBE, tmp_path, every=0)


@pytest.mark.slow
@pytest.mark.core
def test_a_trainer_is_sampled(tmp_path):
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    data = [{"ids": PROBE[0], "labels": PROBE[0]} for _ in range(8)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=4,
        per_device_train_batch_size=2,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=True,
    )
    writer = Writer()
    trainer = Trainer(Small(), arguments, train_dataset=data)
    trainer.add_callback(SimpleWriter(writer))
    trainer.add_callback(
        callbacks.AttentionCallback(PROBE, tmp_path / "samples", every=2, loggers=trainer)
    )
    trainer.train()
    assert [*sample_files(tmp_path / "samples")] == [0, 2, 4]
    assert writer.scalars[NAME][1] == 4


def SimpleWriter(writer: Writer) -> Any:  # noqa: N802 - it makes one
    """An integration that holds a SummaryWriter."""
    from transformers import TrainerCallback

    found = type("TensorBoardCallback", (TrainerCallback,), {})()
    found.tb_writer = writer
    return found


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in with the base class of Lightning's callbacks, forgotten afterwards."""
    monkeypatch.delitem(vars(callbacks), "LightningCallback", raising=False)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    module = ModuleType("pytorch_lightning")
    module.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytorch_lightning", module)
    yield
    vars(callbacks).pop("LightningCallback", None)


@pytest.mark.slow
@pytest.mark.usefixtures("lightning")
def test_a_callback_of_lightning_follows_its_events(tmp_path):
    callback = callbacks.LightningCallback(PROBE, tmp_path, every=2)
    assert isinstance(callback, sys.modules["pytorch_lightning"].Callback)
    logger, model = OfLightning(Writer()), Small()
    trainer = SimpleNamespace(is_global_zero=True, global_step=0, loggers=[logger])
    callback.on_train_start(trainer, model)
    for batch in range(8):  # gradients of two batches make a step
        trainer.global_step = batch // 2
        callback.on_train_batch_end(trainer, model, None, None, batch)
    callback.on_train_end(trainer, model)
    assert [*sample_files(tmp_path)] == [0, 2, 3]
    assert [step for _, step in logger.metrics] == [0, 2, 3]


@pytest.mark.filterwarnings("ignore")  # its own
def test_lightning_is_sampled(tmp_path):
    pl = pytest.importorskip("pytorch_lightning")

    class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = Small()

        def forward(self, ids: Any) -> Any:
            return self.model(ids)

        def training_step(self, batch: Any, number: int) -> Any:
            return self.model(batch, batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = callbacks.LightningCallback(PROBE, tmp_path / "samples", every=2)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        max_steps=4, callbacks=[callback], accelerator="cpu", enable_model_summary=False, **quiet
    )
    data = torch.utils.data.DataLoader(PROBE.repeat(8, 1), batch_size=2)
    trainer.fit(Module(), data)
    assert [*sample_files(tmp_path / "samples")] == [0, 2, 4]


def test_without_lightning_one_line_says_what_is_missing(monkeypatch):
    monkeypatch.delitem(vars(callbacks), "LightningCallback", raising=False)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(UsageError, match=r"needs lightning.pytorch or pytorch_lightning: install"):
        _ = callbacks.LightningCallback
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = callbacks.Nothing
