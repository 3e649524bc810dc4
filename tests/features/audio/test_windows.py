"""Speech models that attend in windows, against eager weights or a slow loop."""

from itertools import product

import numpy as np
import pytest
import torch
from transformers.models.clap.modeling_clap import ClapAudioAttention

from attnviz.core.errors import UsageError
from attnviz.core.query import Query, Recording
from attnviz.features.audio.audio_model import load_audio_model
from attnviz.features.audio.sound_inputs import inputs_of_part, sound_inputs
from attnviz.features.audio.windows import sound_places
from attnviz.features.windows.layers import read_layers
from attnviz.models import attend_query
from tests.families.folders import make_folder
from tests.features.audio.tiny_speech import RATE, chirps

pytestmark = [pytest.mark.models, pytest.mark.slow]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of a small copy of a type."""
    made = {}

    def find(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            make_folder(name, made[name])
        return str(made[name])

    return find


def read(folder, seconds=1.5):
    """The source, what it shows, and what its model is given."""
    source = load_audio_model(folder, device="cpu")
    recording = Recording(chirps(seconds), RATE, 0.0, seconds)
    shown = attend_query(source, Query("", kind="recording", recording=recording))
    given = sound_inputs(source.model, source.extractor, source.cut(recording), source.rate)
    return source, shown, given


def on_diagonal(blocks, before, count):
    """Weights (heads, blocks, queries, keys) of blocks, put where their frames are, one by one."""
    heads, _, size, width = blocks.shape
    whole = np.zeros((heads, count, count))
    for query in range(count):
        block, own = divmod(query, size)
        for key in range(width):
            if 0 <= (place := block * size + key - before) < count:
                whole[:, query, place] = blocks[:, block, own, key]
    return whole


def test_blocks_of_frames_of_gemma4_lie_on_the_diagonal(folders):
    source, shown, given = read(folders("gemma4_audio"))
    with torch.no_grad():
        layers = source.model(**given, output_attentions=True).attentions
    before = source.model.config.attention_context_left - 1
    item = shown.main
    for ours, blocks in zip(item.weights, layers, strict=True):
        expected = on_diagonal(blocks[0].numpy(), before, len(item.key_tokens))
        np.testing.assert_allclose(ours, expected, atol=1e-5)
        assert not ours[:, 20, : 21 - before].any()
    assert item.stream == "causal"
    note = f"at most {before - 1} frames before it and 0 behind it; frames outside of the window"
    assert note in " ".join(shown.provenance.notes)


def test_frames_of_gemma3n_are_those_of_its_scores_in_a_window(folders):
    source, shown, given = read(folders("gemma3n_audio"))
    assert not given["audio_mel_mask"].any()  # its mask marks padding
    scores = []
    for layer in source.model.conformer:
        layer.attention.attn.relative_position_embedding.register_forward_hook(
            lambda _part, _given, output: scores.append(output[0].double().numpy())
        )
    with torch.no_grad():
        source.model(**given)
    config, item = source.model.config, shown.main
    before, cap = config.conf_attention_context_left - 1, config.conf_attention_logit_cap
    for ours, blocks in zip(item.weights, scores, strict=True):
        whole = on_diagonal(cap * np.tanh(blocks / cap), before, len(item.key_tokens))
        for head, query in np.ndindex(whole.shape[:2]):
            first = max(0, query - before)
            row = np.exp(whole[head, query, first : query + 1])
            expected = np.zeros(len(item.key_tokens))
            expected[first : query + 1] = row / row.sum()
            np.testing.assert_allclose(ours[head, query], expected, atol=1e-5)


def windows_of(size, height, width, shift, segments):
    """Band, counted from the highest, and time of each place of the windows of a folded picture."""
    bands = height // segments
    for top in range(0, height, size):
        for left in range(0, width, size):
            places = product(range(top, top + size), range(left, left + size))
            cells = [((row + shift) % height, (column + shift) % width) for row, column in places]
            yield [
                (bands - 1 - row % bands, row // bands * width + column) for row, column in cells
            ]


def test_windows_of_clap_go_back_to_bands_and_times(folders):
    source, shown, given = read(folders("clap"))
    part, layers = source.listener, []
    for layer in part.modules():
        if isinstance(layer, ClapAudioAttention):
            layer.register_forward_hook(lambda _part, _given, output: layers.extend(output[1:]))
    with torch.no_grad():
        part(**given, output_attentions=True)
    name, where = sound_places(part, given, source.extractor.feature_size)
    whole, _ = read_layers(part, given, {name: where}, None)
    config = source.model.config
    segments, own = config.spec_size // config.num_mel_bins, []
    blocks = [block for stage in part.audio_encoder.layers for block in stage.blocks]
    for weights, block, layer in zip(layers, blocks, whole.layers, strict=True):
        rows, columns = layer.keys.grid.shape
        height, width = rows * segments, columns // segments
        expected = np.zeros((weights.shape[1], rows, columns))
        inside = np.zeros((weights.shape[1], rows, columns))
        own.append(inside)
        shift, size = int(block.shift_size), int(block.window_size)
        heard = np.ceil(150 * 1024 / 1001 / (1024 / columns))  # 150 of 1,001 columns of 10 ms
        places = windows_of(size, height, width, shift, segments)
        for window, cells in zip(weights.numpy(), places, strict=True):
            for query, (_, time) in enumerate(cells):
                for key, (band, when) in enumerate(cells):
                    expected[:, band, when] += window[:, query, key] / (rows * columns)
                    if max(time, when) < heard:
                        inside[:, band, when] += window[:, query, key] / (rows * heard)
        np.testing.assert_allclose(layer.mean, expected.reshape(len(expected), -1), atol=1e-5)
    ours = [layer for item in shown.maps for layer in item.weights]
    for layer, inside in zip(ours, own, strict=True):
        columns = layer.shape[-1] // inside.shape[1]
        assert not inside[..., columns:].any()
        kept = inside[..., :columns].reshape(len(inside), -1)
        np.testing.assert_allclose(layer[:, 0], kept, atol=1e-5)
    assert "repeats it behind the recording" in " ".join(shown.provenance.notes)


def test_the_encoder_for_words_is_read_as_its_whole_model_runs_it(folders):
    folder = folders("nemotron3_5_transcribe_audio")
    source, shown, given = read(folder)
    assert given["input_features"].shape[1] % 8 == 0
    assert "one for words is read: asr_encoder" in " ".join(shown.provenance.notes)
    own = type(source.model).from_pretrained(folder, attn_implementation="eager").eval()
    seen = []
    for layer in own.asr_encoder.layers:
        layer.self_attn.register_forward_hook(lambda _part, _given, output: seen.append(output[1]))
    with torch.no_grad():
        own(**given)
    count = len(shown.main.key_tokens)
    for layer, expected in zip(shown.main.weights, seen, strict=True):
        np.testing.assert_allclose(layer, expected[0, :, :count, :count], atol=1e-5)
    own.config.diarization_config.chunk_length = 8
    with torch.no_grad(), pytest.raises(UsageError, match="in chunks"):
        inputs_of_part(own, own.asr_encoder, given)
