"""Speech models against transformers' own weights, and times of words against its own."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Query, Recording
from attnviz.features.audio.audio_model import load_audio_model
from attnviz.features.audio.word_times import WordClock, first_frames
from attnviz.models import attend_query
from attnviz.models.hugging_face.capture.kernel import eager_copy
from attnviz.models.hugging_face.inputs.generation import generate_ids
from tests.families.folders import make_folder
from tests.features.audio import tiny_speech, whisper_timing
from tests.features.audio.tiny_speech import RATE, SPEECH_BUILDERS, chirps
from tests.hugging_face.families import WRITE, documented, heard_maps, read_line
from tests.precision import both, check_as_near

pytestmark = pytest.mark.models

TEXT = "The red car is fast"
WRITERS = ("whisper", "speech_to_text", "moonshine", "speech-encoder-decoder")


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    made = {}

    def find(kind):
        if kind not in made:
            folder = SPEECH_BUILDERS[kind](tmp_path_factory.mktemp(kind))
            made[kind] = load_audio_model(str(folder), device="cpu")
        return made[kind]

    return find


def about(text="", seconds=1.5, **more):
    recording = Recording(chirps(seconds), RATE, 0.0, seconds, **more)
    return Query(text, kind="recording", recording=recording)


def heard(loaded, query=None):
    given = (query or about()).recording
    return loaded.encode_recording(given, loaded.cut(given))[0]


def eager(speech, kind):
    """The same model as transformers runs it eagerly, and its own features of the recording."""
    loaded = speech(kind)
    auto = getattr(transformers, type(loaded.model).__name__)
    model = auto.from_pretrained(loaded.name, attn_implementation="eager").eval()
    return model, loaded.extractor(chirps(), sampling_rate=RATE, return_tensors="pt")


def cast(inputs, model):
    return {
        name: row.to(model.dtype) if row.is_floating_point() else row
        for name, row in inputs.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_a_text_over_a_recording_is_transformers(kind, speech):
    loaded = speech(kind)
    found = attend_query(loaded, about(TEXT, language="en" if kind == "whisper" else None))
    model, features = eager(speech, kind)
    target = loaded.target(about(TEXT, language="en" if kind == "whisper" else None), heard(loaded))
    ids = torch.tensor([target.ids])
    frames = len(found.main.key_tokens)

    def read(model):
        with torch.no_grad():
            made = model(**cast(features, model), decoder_input_ids=ids, output_attentions=True)
        cross, decoder = (torch.cat(part) for part in (made.cross_attentions,
                                                       made.decoder_attentions))  # fmt: skip
        return [cross.numpy()[..., :frames], decoder.numpy()]

    check_as_near([item.weights for item in found.maps], *both(model, read))
    assert [item.stream for item in found.maps] == ["cross", "decoder"]
    words = [found.text[token.start : token.end] for token in found.main.query_tokens]
    assert "".join(words).split() == ["".join(TEXT.split())]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPEECH_BUILDERS)
def test_the_documentation_tells_what_is_found(kind, speech):
    assert read_line(heard_maps(speech(kind)), "audio") in documented().values(), WRITE


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPEECH_BUILDERS)
def test_a_recording_over_itself_is_transformers(kind, speech):
    found = attend_query(speech(kind), about(encoder=kind in WRITERS))
    model, features = eager(speech, kind)
    kept = heard(speech(kind)).places

    def read(model):
        part = model.get_encoder() if kind in WRITERS else model
        with torch.no_grad():
            weights = torch.cat(part(**cast(features, model), output_attentions=True).attentions)
        return [weights.numpy()[:, :, kept][..., kept]]

    check_as_near([found.weights], *both(model, read))
    assert found.main.query_tokens == found.main.key_tokens


@pytest.mark.parametrize("kind", ["whisper", "wav2vec2"])
def test_reading_changes_no_bit_of_an_answer(kind, speech):
    loaded, outputs = speech(kind), []
    part = loaded.model.get_encoder() if kind == "whisper" else loaded.model
    inputs = heard(loaded).features
    with torch.no_grad():
        plain = part(**inputs).last_hidden_state
    with part.register_forward_hook(lambda _part, _given, output: outputs.append(output)):
        attend_query(loaded, about(encoder=kind == "whisper"))
    assert len(outputs) == 2
    assert all(torch.equal(output.last_hidden_state, plain) for output in outputs)


def test_frames_are_named_by_the_second_at_which_they_begin(speech):
    for kind, step, count in (("whisper", 0.02, 75), ("wav2vec2", 0.02, 74),
                              ("moonshine", 0.024, 61), ("speech_to_text", 0.04, 37)):  # fmt: skip
        query = about(encoder=kind in WRITERS)
        tokens = attend_query(speech(kind), query).main.key_tokens
        assert [token.text for token in tokens] == [f"{step * n:.2f}" for n in range(count)]
    patches = [token.text for token in attend_query(speech("ast"), about()).main.key_tokens]
    assert patches[:4] == ["[CLS]", "[DIST]", "0,0", "0,1"]
    assert patches[-1] == "3,18"


def test_whisper_is_told_language_and_task_by_marks(speech):
    loaded = speech("whisper")
    told = attend_query(loaded, about(TEXT, language="French", task="translate"))
    marks = "<|startoftranscript|><|fr|><|translate|><|notimestamps|>"
    assert told.provenance.settings["prompt"] == marks
    chosen = attend_query(loaded, about(TEXT))
    features = heard(loaded).features["input_features"]
    number = int(loaded.model.detect_language(features)[0])
    name = loaded.tokenizer.convert_ids_to_tokens(number)
    assert name in chosen.provenance.settings["prompt"]
    assert any(f"language for '{name[2:-2]}'" in note for note in chosen.provenance.notes)
    with pytest.raises(UsageError, match="unknown language 'xx': choose from en, fr"):
        attend_query(loaded, about(TEXT, language="xx"))
    with pytest.raises(UsageError, match="has no marks of languages"):
        attend_query(speech("moonshine"), about(TEXT, language="en"))
    with pytest.raises(UsageError, match="frames attend to each other"):
        attend_query(speech("hubert"), about(TEXT))


def test_words_are_timed_as_whispers_own_code_does(speech):
    loaded = speech("whisper")
    query = about(TEXT, seconds=2.2, language="en", ended=True)
    found = attend_query(loaded, query)
    read = loaded.target(query, heard(loaded))
    assert read.ids[-1] == loaded.tokenizer.eos_token_id
    heads, _ = loaded.timing_heads(found.main, None)
    clock = WordClock(found.main, found.text, 0.02)
    scores = clock.scores(heads).mean(axis=0)
    features = heard(loaded, query).features["input_features"]
    expected = whisper_timing.mean_scores(loaded.model, features, read.ids, marks=4, frames=110)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert first_frames(scores[None])[0].tolist() == whisper_timing.path(expected)


@pytest.mark.slow
@pytest.mark.core
def test_words_are_timed_as_transformers_does(speech):
    loaded = speech("whisper")
    query = about(seconds=3.0, language="en")
    found = attend_query(loaded, query)
    features = heard(loaded, query).features["input_features"]
    made = loaded.model.generate(
        features, language="en", task="transcribe", max_new_tokens=35,
        return_token_timestamps=True, return_dict_in_generate=True, num_beams=1, do_sample=False,
    )  # fmt: skip
    given, times = made["sequences"][0].tolist(), made["token_timestamps"][0].numpy()
    read = loaded.target(query, heard(loaded, query)).ids
    assert given[-len(read) :] == read
    heads, why = loaded.timing_heads(found.main, None)
    assert (heads, why) == ([(0, 1), (1, 0), (1, 3)], "alignment_heads of its generation config")
    # transformers does not read the last token that it writes.
    item = found.main
    fed = item.with_weights(item.weights[:, :, :-1], query_tokens=item.query_tokens[:-1])
    clock = WordClock(fed, found.text, 0.02, against="input")
    frames = first_frames(clock.scores(heads).mean(axis=0, keepdims=True))[0]
    np.testing.assert_allclose(frames * 0.02, times[-len(frames) - 1 : -1], atol=1e-6)
    assert len({*frames.tolist()}) > 10


def test_a_longer_recording_and_a_longer_text_are_cut(speech):
    long = Recording(chirps(5.0, 8000), 8000, 1.0, 9.0)
    found = attend_query(speech("whisper"), Query(TEXT, kind="recording", recording=long))
    assert len(found.main.key_tokens) == 150
    assert found.main.key_tokens[0].text == "1.00"
    assert "only 1.00 to 4.00 s of 9.00 s are heard: --start 4 goes on" in found.provenance.notes
    assert found.provenance.settings["rate"] == "8,000 Hz, resampled to 16,000 Hz"
    loaded = speech("whisper")
    query = about(language="en")
    features, options = heard(loaded, query).features, {"language": "en", "task": "transcribe"}
    ids, notes = generate_ids(loaded, features, 4, **options)
    assert (len(ids), notes) == (4, ("the model was stopped after 4 tokens",))
    # Whisper's own `generate` leaves out the token that ends its output.
    own = replace(loaded, model=copy.deepcopy(loaded.model))
    own.model.generation_config.eos_token_id = ids[2]
    assert generate_ids(own, features, 30, **options)[1] == ()


def test_tokenizers_and_starts_of_other_models(speech, monkeypatch):
    loaded = speech("whisper")
    own = replace(loaded, tokenizer=copy.deepcopy(loaded.tokenizer))
    own.tokenizer.eos_token = None
    found = attend_query(own, about(TEXT, language="en", ended=True))
    assert not found.main.query_tokens[-1].special
    loaded = speech("speech-encoder-decoder")
    monkeypatch.setattr(loaded.model.config, "decoder_start_token_id", None)
    monkeypatch.setattr(loaded.model.generation_config, "decoder_start_token_id", 2)
    assert loaded.target(about(TEXT), heard(loaded)).ids[0] == 2


@pytest.mark.parametrize(
    ("kind", "step"), [("parakeet_ctc", 0.08), ("sew", 0.04), ("wav2vec2-bert", 0.02)]
)
def test_frames_fill_the_recording(kind, step, speech):
    tokens = attend_query(speech(kind), about(seconds=1.2)).main.key_tokens
    times = [float(token.text) for token in tokens]
    np.testing.assert_allclose(np.diff(times), step, atol=0.011)
    assert 1.2 - 2.1 * step <= times[-1] + step <= 1.2 + 1e-6


@pytest.mark.parametrize("head", ["Wav2Vec2ForCTC", "WhisperForAudioClassification", "RNNT"])
def test_frames_are_those_of_the_part_that_hears(head, tmp_path, speech):
    if head == "RNNT":
        loaded = load_audio_model(str(tiny_speech.parakeet(tmp_path, head)), device="cpu")
        part = loaded.model.encoder
        assert loaded.trace_writers(about()).attention.weights.shape[:2] == (2, 4)
    else:
        base = speech("wav2vec2" if "Wav" in head else "whisper")
        torch.manual_seed(0)
        model = getattr(transformers, head)(base.model.config).eval()
        part = model.wav2vec2 if "Wav" in head else model.encoder
        model.save_pretrained(tmp_path)
        base.extractor.save_pretrained(tmp_path)
        loaded = load_audio_model(InMemoryModel(model, base.extractor))
        saved = load_audio_model(str(tmp_path), device="cpu")
        same = attend_query(saved, about()).weights
        np.testing.assert_allclose(attend_query(loaded, about()).weights, same, atol=1e-6)
    found, one = attend_query(loaded, about()), heard(loaded)
    with torch.no_grad():
        layers = eager_copy(part)(**one.features, output_attentions=True).attentions
    theirs = torch.cat(layers)[:, :, one.places][..., one.places]
    np.testing.assert_allclose(found.weights, theirs, atol=1e-5)


def test_what_cannot_be_read_or_written_is_refused(speech, folder_of):
    with pytest.raises(InputError, match=r"tokens long and .* reads 36"):
        attend_query(speech("whisper"), about("red " * 60))
    with pytest.raises(UsageError, match="hears recordings: use 'attnviz audio FILE'"):
        attend_query(speech("whisper"), Query("a"))
    with pytest.raises(ModelError, match="has no trained head to write with: give --text"):
        attend_query(replace(speech("whisper"), can_generate=False), about())
    with pytest.raises(ModelError, match="has no feature extractor"):
        load_audio_model(str(folder_of("bert")), device="cpu")


def test_a_codec_of_sounds_is_refused(tmp_path):
    config = transformers.EncodecConfig(
        num_filters=2, hidden_size=4, codebook_size=8, codebook_dim=4, num_lstm_layers=1
    )
    transformers.EncodecModel(config).save_pretrained(tmp_path)
    transformers.EncodecFeatureExtractor().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="'encodec' gives out no vectors of frames"):
        attend_query(load_audio_model(str(tmp_path), device="cpu"), about())


def test_an_encoder_gets_the_mask_that_it_asks_for_by_a_name_of_its_own(tmp_path):
    config = transformers.AudioFlamingo3EncoderConfig(
        num_mel_bins=16, num_hidden_layers=2, num_attention_heads=4, hidden_size=32,
        intermediate_size=48, max_source_positions=150,
    )  # fmt: skip
    extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=3)
    folder = tiny_speech.build(tmp_path, "AudioFlamingo3Encoder", config, extractor)
    loaded = load_audio_model(str(folder), device="cpu")
    shown = attend_query(loaded, about()).main.weights
    given = extractor(chirps(), sampling_rate=RATE, return_tensors="pt", return_attention_mask=True)
    mask = given["attention_mask"]
    assert mask.sum() == mask.shape[1] / 2
    model = type(loaded.model).from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        output = model(given["input_features"], mask, output_attentions=True)
    for layer, expected in zip(shown, output.attentions, strict=True):
        np.testing.assert_allclose(
            layer, expected[0, :, : shown.shape[2], : shown.shape[3]], atol=1e-5
        )


def test_of_two_towers_the_one_for_recordings_is_read(tmp_path):
    copy, _ = make_folder("pe_audio", tmp_path)
    loaded = load_audio_model(str(tmp_path), device="cpu")
    shown = attend_query(loaded, about())
    assert "the one for recordings is read: audio_encoder" in " ".join(shown.provenance.notes)
    times = [token.text for token in shown.main.key_tokens]
    assert times[:3] == ["[CLS]", "0.00", "0.12"]  # 1,920 samples of 16,000 a second
    assert len(times) == 1 + int(1.5 / 0.12)
    whole = type(copy.model).from_pretrained(tmp_path, attn_implementation="eager").eval()
    rate = loaded.rate
    heard = loaded.extractor(
        [loaded.cut(about().recording)], sampling_rate=rate, return_tensors="pt"
    )
    with torch.no_grad():
        output = whole.audio_encoder(heard["input_values"], output_attentions=True)
    for layer, expected in zip(shown.main.weights, output.attentions, strict=True):
        rows, keys = layer.shape[1:]
        np.testing.assert_allclose(layer, expected[0, :, :rows, :keys], atol=1e-5)


@pytest.mark.slow
def test_a_codec_is_read_up_to_its_codes(tmp_path):
    copy, _ = make_folder("mimi", tmp_path)
    loaded = load_audio_model(str(tmp_path), device="cpu")
    shown = attend_query(loaded, about())
    assert "the part that attends before the codes" in " ".join(shown.provenance.notes)
    own, seen = type(copy.model).from_pretrained(tmp_path, attn_implementation="eager").eval(), []
    for layer in own.encoder.encoder_transformer.layers:
        layer.self_attn.register_forward_hook(lambda _part, _given, output: seen.append(output[1]))
    samples = loaded.cut(about().recording)
    with torch.no_grad():
        own.encoder(torch.from_numpy(samples)[None, None])
    for layer, expected in zip(shown.main.weights, seen, strict=True):
        np.testing.assert_allclose(
            layer, expected[0, :, : layer.shape[1], : layer.shape[2]], atol=1e-5
        )
    assert shown.main.key_tokens[1].text == "0.04"  # 960 samples of 24,000 a second
