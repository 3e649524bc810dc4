"""Models of sound and text: weights against transformers' own, and frames where they sound."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import transformers

from attnviz import AttnvizError, audio
from attnviz.core.query import Recording
from attnviz.features.audio import audio_text
from attnviz.features.audio.audio_text import (
    AudioTextModel,
    load_audio_text_model,
    reads_sound_and_text,
)
from tests.families.folders import make_folder
from tests.features.audio.tiny_audio_text import AUDIO_TEXT_BUILDERS
from tests.features.audio.tiny_speech import RATE, SPEECH_BUILDERS, chirps
from tests.invoke import attnviz

pytestmark = [pytest.mark.models, pytest.mark.usefixtures("coarse")]
PROMPT, SECONDS = "what is the car", 2.5
STEPS = {"voxtral": 0.08, "qwen2_audio": 0.04, "audioflamingo3": 0.04, "glmasr": 0.08}


@pytest.fixture(scope="module", params=[
    "voxtral",
    *(pytest.param(name, marks=pytest.mark.slow) for name in STEPS if name != "voxtral"),
])  # fmt: skip
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    return load_audio_text_model(str(AUDIO_TEXT_BUILDERS[request.param](folder)), device="cpu")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("sound") / "chirps.wav"
    soundfile.write(file, chirps(SECONDS), RATE, subtype="FLOAT")
    return file


def eager_weights(model: AudioTextModel, inputs: dict[str, Any]) -> np.ndarray:
    kind = type(model.model)
    own = kind.from_pretrained(model.name, attn_implementation="eager").eval()
    with torch.no_grad():
        found = own(**inputs, output_attentions=True, use_cache=False).attentions
    return np.stack([one[0].numpy() for one in found])


def test_words_attend_to_frames_as_in_an_eager_pass(model, sound):
    found = audio(sound, model=model.name, text=PROMPT)
    reading = model.read(chirps(SECONDS), PROMPT)
    whole = eager_weights(model, reading.inputs)
    places = np.flatnonzero(np.array(reading.ids) == model.model.config.audio_token_id)
    item, heard = found.main, len(found.main.key_tokens)
    behind = whole[:, :, places[-1] + 1 :]
    np.testing.assert_allclose(item.weights, behind[..., places[:heard]], atol=1e-5)
    step = STEPS[model.model.config.model_type]
    assert found.provenance.settings["seconds of a frame"] == pytest.approx(step)
    times = [float(token.text) for token in item.key_tokens]
    np.testing.assert_allclose(times, np.arange(heard) * step, atol=0.006)
    assert abs(heard * step - SECONDS) <= step
    assert "the rest goes to text" in found.provenance.notes[-1]


def test_a_frame_is_where_its_sound_is(model):
    """A stretch of noise changes the vector of its own frame most, without attention to others."""
    model = load_audio_text_model(model.name, device="cpu")
    with torch.no_grad():
        for name, weights in model.model.named_parameters():
            if "audio_tower" in name and ("out_proj" in name or "o_proj" in name):
                weights.zero_()
    embedded = list[Any]()
    text_model = next(
        part for name, part in model.model.named_modules() if name.endswith("language_model")
    )
    text_model.register_forward_pre_hook(
        lambda _, args, how: embedded.append(how["inputs_embeds"][0]), with_kwargs=True
    )
    silence = np.zeros(round(SECONDS * RATE), dtype=np.float32)
    noise = np.random.default_rng(0).normal(0, 0.5, RATE).astype(np.float32)
    missed, step = [], model.step()
    for start in (0.4, 1.2, 2.0):
        sounds = silence.copy()
        first = round(start * RATE)
        sounds[first : first + RATE // 5] = noise[: RATE // 5]
        embedded.clear()
        for samples in (silence, sounds):
            reading = model.read(samples, PROMPT)
            with torch.no_grad():
                model.model(**reading.inputs, use_cache=False)
        places = np.flatnonzero(np.array(reading.ids) == model.model.config.audio_token_id)
        change = (embedded[1] - embedded[0])[places].norm(dim=-1).numpy()
        time = int(change[: round(SECONDS / step)].argmax()) * step
        if not start - step <= time <= start + 0.2 + step:
            missed.append((start, time))
    assert not missed


def test_what_the_model_writes_has_the_rows_that_predict_it(model, sound):
    found = audio(sound, model=model.name, text=PROMPT, generate=4)
    reading = model.read(chirps(SECONDS), PROMPT)
    with torch.no_grad():
        ids = model.model.generate(**reading.inputs, max_new_tokens=4, do_sample=False)[0].tolist()
    new = ids[len(reading.ids) :] if ids[: len(reading.ids)] == reading.ids else ids
    ends = {model.tokenizer.eos_token_id, model.model.generation_config.eos_token_id}
    new = new[:-1] if new[-1] in ends else new
    inputs = dict(reading.inputs)
    inputs["input_ids"] = torch.tensor([[*reading.ids, *new]])
    if "attention_mask" in inputs:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    whole = eager_weights(model, inputs)
    places = np.flatnonzero(np.array(reading.ids) == model.model.config.audio_token_id)
    rows = slice(len(reading.ids) - 1, len(reading.ids) - 1 + len(new))
    expected = whole[:, :, rows][..., places[: len(found.main.key_tokens)]]
    assert found.main.query_side == "written"
    np.testing.assert_allclose(found.weights, expected, atol=1e-5)


@pytest.fixture(scope="module")
def voxtral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return AUDIO_TEXT_BUILDERS["voxtral"](tmp_path_factory.mktemp("voxtral"))


def test_a_picture_has_the_spectrogram_above_its_frames(voxtral, sound, tmp_path):
    file = tmp_path / "look.png"
    done = attnviz("audio", sound, "--model", voxtral, "--text", PROMPT, "--heatmap", file)
    assert done.status == 0, done.err
    assert "keys of padding behind the recording are left out" in done.err
    axes = audio(sound, model=str(voxtral), text=PROMPT).picture("heatmap").axes
    assert "spectrogram" in [one.get_label() for one in axes]
    assert axes[0].get_xlabel() == "key (attended), in seconds"


def test_a_model_in_memory_reads_sound_and_text(voxtral, sound):
    model = transformers.VoxtralForConditionalGeneration.from_pretrained(voxtral)
    processor = transformers.AutoProcessor.from_pretrained(voxtral)
    found = audio(sound, model=model, processor=processor, text=PROMPT)
    again = audio(sound, model=str(voxtral), text=PROMPT)
    np.testing.assert_array_equal(found.weights, again.weights)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "give --text, such as"),
        ({"text": PROMPT, "language": "en"}, "leave --language, --task and --stream out"),
        ({"text": PROMPT, "word_times": True}, "its words have no times"),
    ],
)
def test_what_such_a_model_does_not_do_is_one_line(options, reason, voxtral, sound):
    with pytest.raises(AttnvizError, match=reason):
        audio(sound, model=str(voxtral), **options)


def test_a_tokenizer_of_mistral_common_names_its_package(voxtral, tmp_path, monkeypatch):
    for file in voxtral.iterdir():
        if file.name != "tokenizer.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tekken.json").write_text("{}")
    monkeypatch.setattr(audio_text, "find_spec", lambda name: None)
    with pytest.raises(AttnvizError, match="needs the package mistral-common"):
        load_audio_text_model(str(tmp_path), device="cpu")


def test_other_speech_models_are_told_apart(voxtral, sound, tmp_path):
    whisper = SPEECH_BUILDERS["whisper"](tmp_path / "whisper")
    assert reads_sound_and_text(str(voxtral))
    assert not reads_sound_and_text(str(whisper))
    done = attnviz("audio", sound, "--model", whisper, "--generate", 3)
    assert "--generate is for models that read a text" in done.mistake
    samples = Recording(chirps(40.0), RATE, 0.0, 40.0)
    whole = load_audio_text_model(str(voxtral), device="cpu")
    assert len(whole.cut(samples)) == 30 * RATE


@pytest.mark.slow
def test_noise_beside_the_vectors_of_sound_is_left_out(sound, tmp_path):
    make_folder("vibevoice_asr", tmp_path)
    assert reads_sound_and_text(str(tmp_path))
    loaded = load_audio_text_model(str(tmp_path), 3, device="cpu")
    samples = loaded.cut(Recording(chirps(SECONDS), RATE, 0.0, SECONDS))
    reading = loaded.read(samples, PROMPT)
    whole = eager_weights(loaded, reading.inputs)
    places = np.flatnonzero(np.array(reading.ids) == loaded.model.config.audio_token_id)
    shown = audio(sound, model=str(tmp_path), text=PROMPT)
    behind = whole[:, :, places[-1] + 1 :][..., places[: len(shown.main.key_tokens)]]
    np.testing.assert_allclose(shown.main.weights, behind, atol=1e-5)
    assert audio_text.WITHOUT_NOISE in shown.provenance.notes
    written = audio(sound, model=str(tmp_path), text=PROMPT, generate=3)
    assert written.main.query_side == "written"
    assert audio_text.WITHOUT_NOISE in written.provenance.notes
