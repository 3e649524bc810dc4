"""attnviz audio: data, pictures, times of words and mistakes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from attnviz import AttnvizError, audio
from attnviz.features.audio.recordings import read_recording
from attnviz.features.audio.request import spectrogram
from tests.features.audio.tiny_speech import RATE, SPEECH_BUILDERS, chirps
from tests.invoke import attnviz

pytestmark = [pytest.mark.models, pytest.mark.usefixtures("coarse")]
SAMPLES = Path(__file__).parents[3] / "sample_inputs"
VOWELS, TIMES = SAMPLES / "vowels.wav", SAMPLES / "vowels.tsv"
TIMING = [{"layer": layer, "head": head} for layer, head in ((0, 1), (1, 0), (1, 3))]
SAID = ("--text", "ah ee oh eh oo", "--language", "en")


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SPEECH_BUILDERS["whisper"](tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="module")
def ast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SPEECH_BUILDERS["ast"](tmp_path_factory.mktemp("ast"))


@pytest.mark.slow
def test_data_and_what_is_not_heard_are_told(whisper, tmp_path):
    done = attnviz("audio", VOWELS, "--model", whisper, *SAID, "-f", "json")
    found = done.json()
    assert [np.shape(item["weights"])[1:] for item in found["maps"]] == [(4, 19, 130), (4, 19, 19)]
    assert found["provenance"]["settings"]["recording"] == "vowels.wav"
    assert done.err == "note: 20 keys of padding behind the recording are left out\n"
    frames = attnviz("audio", VOWELS, "--model", whisper, "--stream", "encoder", "-f", "json")
    (item,) = frames.json()["maps"]
    assert np.shape(item["weights"]) == (2, 4, 130, 130)
    assert "only tokens 0 to 129 of 150 tokens attend, and only to each other" in frames.err
    path = tmp_path / "two.flac"
    soundfile.write(path, np.stack([chirps(4.0), chirps(4.0)], axis=1), RATE)
    done = attnviz("audio", path, "--model", whisper, *SAID, "--start", 0.5, "-f", "none")
    assert "note: 2 channels were mixed to one\n" in done.err
    assert "note: only 0.50 to 3.50 s of 4.00 s are heard: --start 3.5 goes on\n" in done.err
    assert attnviz("audio", path, "--model", whisper, "--start", 4).mistake.endswith(
        "ends at 4.00 s"
    )
    soundfile.write(path, chirps(0.5), RATE)
    assert "ends at 0.50 s" in attnviz("audio", path, "--model", whisper, "--start", 1).mistake


@pytest.mark.slow
def test_why_a_head_listens_there_adds_up(whisper, ast):
    """The parts of each side sum to the score above the mean, of a text and of frames alone."""
    text = ("why", VOWELS, "ah ee oh", "--model", whisper, "--head")
    for head, stream in (("1.2", "cross"), ("encoder.1.2", "encoder"), ("decoder.1.1", "decoder")):
        found = attnviz(*text, head, "-f", "json")
        document = found.json()
        assert document["head"]["stream"] == stream
        for side in ("query", "key"):
            total = sum(one["value"] for one in document[side]) + (document["position"] or 0)
            assert total == pytest.approx(document["contrast"], rel=1e-3, abs=1e-4)
        assert len({one["writer"] for one in document["key"]}) > 3
    assert "note: the strongest link" in found.err
    wires = attnviz("heads", "-i", VOWELS, "--wiring", "--model", whisper, "-f", "json").json()[
        "wires"
    ]
    assert {one["head"]["stream"] for one in wires} == {"cross", "encoder", "decoder"}
    assert "needs a speech model" in attnviz("why", VOWELS).mistake


def test_a_spectrogram_has_low_bands_below():
    made = spectrogram(np.array([[0, 1], [2, 4]], np.float32))
    assert made.size == (8, 8)
    corners = [made.getpixel(place) for place in ((0, 7), (7, 7), (0, 0), (7, 0))]
    assert corners == sorted({*corners}, reverse=True)


@pytest.mark.slow
def test_a_spectrogram_stands_above_the_heat_map(whisper, ast, tmp_path):
    for name, model, more in (("text", whisper, SAID), ("patches", ast, ())):
        file = tmp_path / f"{name}.svg"
        done = attnviz(
            "audio", VOWELS, "--model", model, *more, "--heatmap", file, "--html",
            tmp_path / "a.html", "-f", "none", "-q",
        )  # fmt: skip
        assert (done.status, done.err) == (0, "")
        pictures = file.read_text("utf-8").count("<image")
        assert pictures == (3 if name == "text" else 2)  # the bar, the map, the spectrogram


@pytest.mark.slow
@pytest.mark.core
def test_words_get_their_times_in_every_form(whisper, tmp_path):
    run = ("audio", VOWELS, "--model", whisper, *SAID, "--word-times")
    table = attnviz(*run)
    assert table.lines[0].split() == ["word", "start", "end"]
    assert "timed by heads 0.1,1.0,1.3: alignment_heads of its generation config" in table.err
    found = attnviz(*run, "-f", "json", "-q").json()
    assert [word["text"] for word in found["words"]] == ["ah", "ee", "oh", "eh", "oo"]
    assert found["heads"] == TIMING
    starts = [word["start"] for word in found["words"]]
    assert starts == sorted(starts)
    rows = attnviz(*run, "-f", "tsv", "-q").rows
    assert [float(row[1]) for row in rows[1:]] == starts
    written = tmp_path / "words.TextGrid"
    assert attnviz(*run[:-1], "-f", "vtt", "-o", written, "-q").text.startswith("WEBVTT\n")
    assert '"IntervalTier"\n"words"\n0\n2.600\n' in written.read_text("utf-8")


@pytest.mark.slow
def test_true_times_tell_how_far_each_head_errs(whisper):
    run = ("audio", VOWELS, "--model", whisper, "--language", "en", "--times", TIMES)
    done = attnviz(*run, "-f", "json")
    found = done.json()
    assert found["text"] == "ah ee oh eh oo"
    asked, *every = found["errors"]
    errors = [row["error"] for row in every]
    assert len(errors) == 8
    assert errors == sorted(errors)
    assert asked["heads"] == TIMING
    one = every[0]["heads"][0]
    again = attnviz(
        *run, "--timing-heads", f"{one['layer']}.{one['head']}", "-f", "json", "-q"
    ).json()["errors"][0]
    assert again["error"] == pytest.approx(errors[0])
    assert found["alignment_heads"] is None
    assert found["note"] == "no best set of heads is chosen by 5 words: it takes 30 at least"
    assert f"note: {found['note']}\n" in done.err
    assert "alignment_heads" not in attnviz(*run, "-q").text


def test_samples_in_memory_are_those_of_their_file(whisper):
    samples, rate = soundfile.read(VOWELS, dtype="float32")
    how = {"model": str(whisper), "text": "ah ee oh eh oo", "language": "en", "start": 0.5}
    from_file = audio(str(VOWELS), **how)
    whole = soundfile.read(VOWELS, dtype="int16")[0]
    for one in (samples, whole, torch.tensor(samples), np.stack([samples, samples])):
        found = audio(one, sampling_rate=rate, **how)
        np.testing.assert_allclose(found.weights, from_file.weights, atol=1e-5)
        assert found.id == "recording"
    assert "2 channels were mixed to one" in found.notes


@pytest.mark.parametrize(
    ("given", "rate", "says"),
    [
        (np.zeros(9, np.float32), None, "sampling_rate= is for an array of samples: give both"),
        ("a.wav", 16000, "sampling_rate= is for an array of samples: give both"),
        (np.zeros(9, np.float32), 3, "3 samples a second"),
        (np.zeros((1, 2, 3)), 16000, "is a ndarray of float64 with 3 axes"),
        (np.zeros(9, np.uint8), 16000, "of uint8 with 1 axes: give a file, or floats or signed"),
        (np.full(9000, np.nan), 16000, "NaN or infinite"),
        (np.zeros(0), 16000, "holds no sound"),
        (5, 16000, "with 0 axes"),
    ],
)
def test_what_is_no_recording_in_memory_is_refused(given, rate, says):
    with pytest.raises(AttnvizError, match=says):
        audio(given, sampling_rate=rate, model="x")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "a recording needs a speech model: --model ID_OR_FOLDER"),
        (("--model", "x", "--timing-heads", "1"), "names no heads: write 2.0"),
        (("--model", "x", "--timing-heads", "1.0"), "add --word-times or --times"),
        (("--model", "x", "--start", "nan"), "no second of a recording"),
        (("--model", "x", "--text", " "), "the text is empty"),
        (("--model", "x", "--times", VOWELS), "holds no times of words"),
        (("--model", "x", "--word-times", "-f", "npz"), "cannot hold times of words"),
        (
            ("--model", "x", "-f", "vtt", "--html", "a.html"),
            "-f vtt writes times, not maps: leave --html out",
        ),
        *(
            (("--model", "x", "--word-times", "-o", name, "--html", "a.html"), f"{option} writes")
            for name, option in (("a.vtt", "-o a.vtt"), ("a.json", "--word-times"))
        ),
    ],
)
def test_mistakes_are_told_before_anything_loads(arguments, said):
    assert said in attnviz("audio", VOWELS, *arguments).mistake


def test_mistakes_that_only_the_model_can_tell(whisper, ast, tmp_path):
    for model, more, said in (
        (
            whisper,
            (*SAID, "--word-times", "--timing-heads", "2.0"),
            "the decoder has 2 layers of 4 heads",
        ),
        (whisper, ("--text", "ah", "--times", TIMES), "must have the same words"),
        (ast, ("--word-times",), "writes no text"),
        (whisper, ("--task", "dance"), "unknown value 'dance' for --task"),
    ):
        assert said in attnviz("audio", VOWELS, "--model", model, *more, "-q").mistake
    for data, said in ((b"", "cannot be read as a recording"), (b"RIFFxxxxWAVE", "cannot be read")):
        (tmp_path / "a.wav").write_bytes(data)
        assert said in attnviz("audio", tmp_path / "a.wav", "--model", whisper).mistake
    soundfile.write(tmp_path / "b.wav", np.zeros((0, 1)), RATE)
    assert "holds no sound" in attnviz("audio", tmp_path / "b.wav", "--model", whisper).mistake
    soundfile.write(tmp_path / "c.wav", np.full(99, np.nan), RATE, "FLOAT")
    assert "NaN or infinite" in attnviz("audio", tmp_path / "c.wav", "--model", whisper).mistake
    assert "is a folder" in attnviz("audio", tmp_path, "--model", whisper).mistake


def test_a_part_has_as_many_samples_as_its_seconds(tmp_path):
    sound = chirps(1.0)
    soundfile.write(tmp_path / "a.wav", sound, RATE, "FLOAT")
    for given in (tmp_path / "a.wav", (sound, RATE)):
        part = read_recording(given, 0.25, 0.5)
        assert (len(part.samples), part.start, part.total) == (RATE // 2, 0.25, 1.0)


def test_what_a_decoder_says_of_a_file_is_not_printed(tmp_path, capfd):
    path = tmp_path / "a.mp3"
    soundfile.write(path, chirps(1.0), RATE, format="MP3")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 3] + bytes(200) + data[len(data) // 3 + 200 :])
    soundfile.read(path)
    assert "Illegal Audio-MPEG-Header" in capfd.readouterr().err
    assert len(read_recording(path, 0, 30).samples) > 8000
    assert capfd.readouterr().err == ""


def test_without_soundfile_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    said = attnviz("audio", VOWELS, "--model", "x").mistake
    assert said.endswith("needs the packages soundfile and soxr: pip install 'attnviz[audio]'")


def test_a_hostile_feature_extractor_is_refused(whisper, tmp_path):
    for file in whisper.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "preprocessor_config.json"
    usual = json.loads(path.read_text("utf-8"))
    for change, said in (
        ({"n_fft": 1 << 40}, "says 'n_fft' 1099511627776: at most 16,384"),
        ({"feature_size": 1025}, "says 'feature_size' 1025: at most 1,024"),
        ({"num_mel_bins": 1025}, "says 'num_mel_bins' 1025: at most 1,024"),
        ({"chunk_length": 601}, "says 'chunk_length' 601: at most 600"),
        ({"sampling_rate": 5}, "wants 5 samples a second"),
        ({"hop_length": 0}, "feature extractor"),
    ):
        path.write_text(json.dumps(usual | change))
        assert said in attnviz("audio", VOWELS, "--model", tmp_path).mistake
