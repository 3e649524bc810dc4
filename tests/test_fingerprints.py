"""Models and files that calls and threads share: none answers with what they were before."""

import gc
import json
import os
import shutil
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz
from attnviz import attend, attend_many
from attnviz.core.errors import AttnvizError, UsageError
from attnviz.core.locks import model_lock
from attnviz.core.options import Choice, InMemoryModel, Options, Origin
from attnviz.features.corpus.accumulators import Aggregates
from attnviz.features.corpus.study import CorpusJournal, CorpusState
from attnviz.features.corpus.words import vocabulary_of
from attnviz.models.fingerprints import ModelFingerprint, fingerprint_files
from attnviz.models.hugging_face.capture.kernel import watch_kernels
from attnviz.models.hugging_face.load import imports
from attnviz.models.hugging_face.load.imports import quiet_native
from attnviz.runs.journal import Journal, Progress, check_same_options, run_options
from attnviz.runs.many_texts import AttendChunk
from attnviz.storage.writing import beside
from tests.hugging_face.tiny_models import bert, byte_pieces, gpt2, mamba, save
from tests.invoke import attnviz as shell

pytestmark = pytest.mark.models
TEXT = "the red car is"
TEXTS = ["the red car is", "the car", "red car is the", "the student is red", "is the car red"]
KINDS: dict[str, Callable[[Path], Path]] = {
    "bert": bert,
    "gpt2": gpt2,
    "falcon": lambda folder: save(
        folder,
        "FalconModel",
        byte_pieces(),
        transformers.FalconConfig(
            vocab_size=340, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=False
        ),
    ),
}
"""The last makes its attention's class when it is made, and calls no kernel."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {kind: make(tmp_path_factory.mktemp(kind)) for kind, make in KINDS.items()}


@pytest.fixture
def load(folders):
    def loaded(kind="bert", **more):
        folder = folders[kind]
        model = transformers.AutoModel.from_pretrained(folder, **more)
        return model, transformers.AutoTokenizer.from_pretrained(folder)

    return loaded


def other_weights(model):
    return {name: value * 1.5 + 0.05 for name, value in model.state_dict().items()}


def assigned(model):
    model.load_state_dict(other_weights(model), assign=True)


def blocks(model):
    return model.encoder.layer if hasattr(model, "encoder") else model.h


def swapped(model):
    layer = deepcopy(blocks(model)[0])
    with torch.no_grad():
        for one in layer.parameters():
            one.mul_(1.5)
    blocks(model)[0] = layer


def replaced_data(model):
    for one in model.parameters():
        one.data = one.data * 1.5


def written_data(model):
    for one in model.parameters():
        one.data.mul_(1.5)


def adapted(model):
    import peft

    names = {"bert": "query", "gpt2": "c_attn", "falcon": "query_key_value"}
    config = peft.LoraConfig(
        target_modules=[names[model.config.model_type]],
        init_lora_weights=False,
        fan_in_fan_out=model.config.model_type == "gpt2",
    )
    peft.inject_adapter_in_model(config, model)  # as `model.add_adapter`, in all of its versions


def truth(model, tokenizer, **options):
    """What a model that attends eagerly from its making on gives, with the same modules."""
    eager = deepcopy(model)
    for part in eager.modules():
        if hasattr(part, "config"):  # a copied layer has one of its own
            part.config._attn_implementation = "eager"
    return attend(TEXT, model=eager, tokenizer=tokenizer, **options)


@pytest.mark.slow
@pytest.mark.parametrize("change", [assigned, swapped, replaced_data, written_data, adapted])
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_lens_sees_the_weights_of_now(kind, change, load):
    model, tokenizer = load(kind)
    before = attend(TEXT, model=model, tokenizer=tokenizer, lens="norm")
    change(model)
    found = attend(TEXT, model=model, tokenizer=tokenizer, lens="norm")
    expected = truth(model, tokenizer, lens="norm")
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)
    assert np.abs(found.weights - before.weights).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("change", [assigned, swapped, replaced_data, written_data, adapted])
def test_so_do_weights_without_a_kernel(change, load):
    model, tokenizer = load("falcon")
    eager, _ = load("falcon", attn_implementation="eager")
    attend(TEXT, model=model, tokenizer=tokenizer)
    attend(TEXT, model=eager, tokenizer=tokenizer)
    for one in (model, eager):
        torch.manual_seed(0)
        change(one)
    found = attend(TEXT, model=model, tokenizer=tokenizer)
    expected = attend(TEXT, model=eager, tokenizer=tokenizer)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)


@pytest.mark.slow
def test_layers_that_were_put_in_are_all_read(load):
    model, tokenizer = load("bert")
    given = {"model": model, "tokenizer": tokenizer}
    assert {len(one.weights) for one in attend_many(TEXTS, **given)} == {3}
    blocks(model).append(deepcopy(blocks(model)[2]))
    for found, text in zip(attend_many(TEXTS, **given), TEXTS, strict=True):
        alone = attend(text, **given)
        assert found.main.layers == alone.main.layers == ("0", "1", "2", "3")
        np.testing.assert_allclose(found.weights, alone.weights, atol=1e-5)
    normed = attend(TEXT, **given, lens="norm")
    np.testing.assert_allclose(normed.weights, truth(model, tokenizer, lens="norm").weights)


def test_layers_of_ones_own_are_kept(load):
    class Doubled(torch.nn.Module):
        def __init__(self, inside):
            super().__init__()
            self.inside = inside

        def forward(self, given):
            return self.inside(given) * 2

    model, tokenizer = load("falcon")
    eager, _ = load("falcon", attn_implementation="eager")
    plain = attend(TEXT, model=model, tokenizer=tokenizer)
    for one in (model, eager):
        one.h[0].mlp = Doubled(one.h[0].mlp)
    found, expected = (attend(TEXT, model=one, tokenizer=tokenizer) for one in (model, eager))
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)
    assert np.abs(found.weights - plain.weights).max() > 1e-3
    model.h.append(deepcopy(model.h[1]))
    with pytest.raises(AttnvizError, match="load it with attn_implementation='eager'"):
        attend(TEXT, model=model, tokenizer=tokenizer)
    del model.h[1:]
    with pytest.raises(AttnvizError, match="load it with attn_implementation='eager'"):
        attend(TEXT, model=model, tokenizer=tokenizer)


def test_a_buffer_is_shared_too(load):
    model, tokenizer = load("falcon")
    eager, _ = load("falcon", attn_implementation="eager")
    for one in (model, eager):
        one.rotary_emb.inv_freq.mul_(3)
    found, expected = (attend(TEXT, model=one, tokenizer=tokenizer) for one in (model, eager))
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)


def test_a_state_is_that_of_the_model(load):
    model, _ = load("bert")
    state = ModelFingerprint(model)
    assert state == ModelFingerprint(model)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.add_(0)
    assert state != ModelFingerprint(model)
    for _ in range(20):  # a new tensor may lie where the old one did
        state = ModelFingerprint(model)
        weight = model.embeddings.word_embeddings
        weight.weight = torch.nn.Parameter(weight.weight.detach().clone())
        gc.collect()
        assert state != ModelFingerprint(model)


def saved_again(folder):
    model = transformers.AutoModel.from_pretrained(folder)
    model.load_state_dict(other_weights(model))
    model.save_pretrained(folder)


def test_a_checkpoint_saved_anew_is_read_anew(folders, tmp_path):
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "model"))
    before = attend(TEXT, model=folder)
    assert attend(TEXT, model=folder) == before
    saved_again(folder)
    after = attend(TEXT, model=folder)
    assert after != before
    attnviz.unload()
    assert attend(TEXT, model=folder) == after


@pytest.mark.parametrize("name", ["dump.npz", "dump.json"])
def test_a_dump_written_again_is_read_again(name, tmp_path):
    path = tmp_path / name
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2):
        arrays = {one: rng.normal(size=(1, 2, 4, 8)).astype(np.float32) for one in ("query", "key")}
        if name.endswith("npz"):
            np.savez(path, **arrays)
        else:
            path.write_text(json.dumps({one: value.tolist() for one, value in arrays.items()}))
        scores = arrays["query"] @ arrays["key"].swapaxes(-1, -2) / np.sqrt(8)
        shares = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
        found.append((attend("", qk=path).weights, shares))
    for weights, expected in found:
        np.testing.assert_allclose(weights, expected, atol=1e-6)


@pytest.mark.slow
def test_a_run_reads_one_state_of_a_model(folders, tmp_path):
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "model"))
    many = [f"{text} {word}" for text in TEXTS for word in ["a"] * 60]
    whole = list(attend_many(many, model=folder))
    results = attend_many(many, model=folder)
    first = next(results)
    saved_again(folder)
    rest = list(results)
    assert [first, *rest] == whole


def test_a_worker_behind_a_change_says_so(folders, tmp_path):
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "model"))
    work = AttendChunk(Origin(model=str(folder)), Choice(), "self")
    saved_again(folder)
    with pytest.raises(AttnvizError, match="changed after the run began: start it again"):
        work.open()


def test_what_the_disk_says_of_files(tmp_path):
    path = tmp_path / "a"
    path.write_text("1")
    state = fingerprint_files([path])
    assert state == fingerprint_files([path, tmp_path / "none"])
    facts = path.stat()
    path.write_text("2")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert fingerprint_files([path]) != state
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # written with its old time
    assert path.stat().st_mtime_ns == facts.st_mtime_ns
    assert fingerprint_files([path]) != state
    state = fingerprint_files([path])
    assert fingerprint_files([path]) == state
    (tmp_path / "b").write_text("3")  # another file in its place, of the same size and time
    os.utime(tmp_path / "b", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    (tmp_path / "b").replace(path)
    assert fingerprint_files([path]) != state


def test_values_differ_by_both_signs():
    one, other = object(), object()
    first, same, second = InMemoryModel(one), InMemoryModel(one), InMemoryModel(other)
    assert first == same
    assert not first != same  # noqa: SIM202 - both signs are asked
    assert first != second
    assert first != "a"
    assert not first == "a"  # noqa: SIM201


# Threads.


def together(asks):
    """What each of some functions gives, all in threads of their own at once."""
    ready = threading.Barrier(len(asks))

    def run(ask):
        ready.wait(60)
        return ask()

    with ThreadPoolExecutor(len(asks)) as pool:
        return list(pool.map(run, asks))


ASKS: dict[str, Callable[..., Any]] = {
    "raw": lambda **given: attend(TEXT, **given),
    "norm": lambda **given: attend(TEXT, **given, lens="norm"),
    "gradient": lambda **given: attend(TEXT, **given, lens="gradient"),
    "many": lambda **given: [one.weights.tolist() for one in attend_many(TEXTS, **given)],
    "heads": lambda **given: attnviz.heads(TEXTS, **given).data.table(),
}


def asked(what, given):
    found = ASKS[what](**given)
    return found.weights.tolist() if hasattr(found, "weights") else found


@pytest.mark.slow
@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("kinds", [("gpt2", "bert"), ("gpt2", "gpt2")])
def test_eight_threads_get_what_one_gets(models, kinds, load):
    given = []
    for number, kind in enumerate(kinds[:models]):
        model, tokenizer = load(kind)
        if number:
            swapped(model)
        given.append({"model": model.train(), "tokenizer": tokenizer})
    names = ["raw", "norm", "many", "raw"]
    expected = [asked(names[n % 4], given[n % models]) for n in range(8)]
    verbosity, filters = transformers.logging.get_verbosity(), list(warnings.filters)
    for _ in range(3):
        found = together([lambda n=n: asked(names[n % 4], given[n % models]) for n in range(8)])
        assert found == expected
    assert transformers.logging.get_verbosity() == verbosity
    assert list(warnings.filters) == filters
    assert all(one["model"].training for one in given)
    assert {one["model"].config._attn_implementation for one in given} == {"sdpa"}
    assert not hasattr(transformers.modeling_utils.AttentionInterface, "_unwatched")


def test_one_thread_keeps_native_code_off_stdout():
    """Of two at once the second would put back as stdout what the first has put there."""
    with quiet_native(), ThreadPoolExecutor(1) as pool:
        assert not pool.submit(imports._NATIVE.acquire, blocking=False).result()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(imports._NATIVE.acquire, blocking=False).result()
        pool.submit(imports._NATIVE.release).result()


def test_threads_share_a_model_loaded_by_name(folders):
    attnviz.unload()
    asks = [
        lambda n=n: attend(TEXTS[n % 5], model=folders["bert"]).weights.tolist() for n in range(8)
    ]
    expected = [ask() for ask in asks]
    attnviz.unload()
    assert together(asks) == expected


def test_threads_with_models_without_attention(tmp_path):
    folder = mamba(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    models = [transformers.AutoModel.from_pretrained(folder) for _ in range(2)]
    swap = dict(models[1].named_parameters())
    with torch.no_grad():
        for one in swap.values():
            one.mul_(1.1)
    asks = [
        lambda n=n: attend(TEXT, model=models[n % 2], tokenizer=tokenizer).weights.tolist()
        for n in range(8)
    ]
    expected = [ask() for ask in asks]
    assert together(asks) == expected


def test_another_threads_pass_is_not_watched(load):
    model, _ = load("bert")
    ids = torch.arange(4)[None]
    seen: list[Any] = []

    def forward():
        return model(ids).last_hidden_state

    def spoil(call):
        seen.append(call)
        return call.output * 0

    with torch.no_grad():
        plain = forward()
        with watch_kernels(spoil), ThreadPoolExecutor(1) as pool:

            def elsewhere():
                with torch.no_grad():
                    return forward()

            found = pool.submit(elsewhere).result()
            assert seen == []
            forward()
    assert len(seen) == 3
    assert torch.equal(found, plain)


def test_a_model_is_waited_for_and_another_is_not(load):
    model, tokenizer = load("bert")
    other, _ = load("bert")
    done = threading.Event()

    def ask(one):
        attend(TEXT, model=one, tokenizer=tokenizer)
        done.set()

    with model_lock(model):
        first = threading.Thread(target=ask, args=(model,))
        first.start()
        second = threading.Thread(target=ask, args=(other,))
        second.start()
        second.join(60)
        assert done.is_set()
        done.clear()
        attend(TEXT, model=model, tokenizer=tokenizer)  # whose turn it is may ask again
        assert first.is_alive()
        assert not done.is_set()
    first.join(60)
    assert done.is_set()


# Runs that go on.


def unfinished(place, options):
    Journal(options, Progress(1)).write(beside(place, "journal"))
    beside(place, "unfinished").touch()


def test_a_resumed_run_wants_the_same_model(folders, tmp_path):
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "model"))
    texts, place = tmp_path / "t.txt", tmp_path / "a.jsonl"
    texts.write_text("\n".join(TEXTS))
    asked = ("self", "-i", texts, "--model", folder, "-q", "-f", "none", "-o", place, "--resume")
    (folder / "notes.md").write_text("no part of the model")
    unfinished(place, run_options("self", Options(Origin(model=str(folder))), texts))
    (folder / "notes.md").write_text("as before")
    assert shell(*asked).status == 0
    place.unlink()
    unfinished(place, run_options("self", Options(Origin(model=str(folder))), texts))
    saved_again(folder)
    done = shell(*asked)
    assert done.status == 2
    assert "started with different options: the state of --model's files was" in done.mistake
    assert not place.exists()


def test_a_resumed_run_wants_the_same_groups(tmp_path):
    texts, groups = tmp_path / "t.txt", tmp_path / "groups"
    texts.write_text("a")
    found = []
    for text in ("the red\n", "red car\n"):
        groups.write_text(text)
        found.append(run_options("self", Options(choice=Choice(group=str(groups))), texts))
    with pytest.raises(UsageError, match="the state of --group's files was"):
        check_same_options(*found, texts)


def test_a_resumed_run_wants_the_same_memory(load, tmp_path):
    """The same numbers in another process are the same model; one changed number is another."""
    texts = tmp_path / "t.txt"
    texts.write_text("\n".join(TEXTS))

    def options(model):
        return run_options("self", Options(Origin(model=InMemoryModel(model))), texts)

    model, tokenizer = load("bert")
    other, _ = load("bert", dtype=torch.bfloat16)
    wide = other.float()
    before = options(model)
    assert before == options(load("bert")[0])
    assert before != options(wide)
    model.encoder.layer[1].output.dense.weight.data[3, 5] += 1e-3
    with pytest.raises(UsageError, match="the weights of --model was"):
        check_same_options(before, options(model), texts)
    place = tmp_path / "found.json"
    asked = {"model": model, "tokenizer": tokenizer, "checkpoint": place}
    first = attnviz.heads(input=texts, **asked).to_json()
    state = CorpusState(Aggregates(vocabulary_of([])), records=1)
    journal = CorpusJournal(place, before)
    journal.saved_at = -1e9
    journal.save_state(state)
    with pytest.raises(UsageError, match="was started with different options"):
        attnviz.heads(input=texts, **asked)
    journal.remove()
    assert attnviz.heads(input=texts, **asked).to_json() == first


def test_what_is_kept_of_a_model_lets_go_of_it(load):
    model, tokenizer = load("bert")
    attend(TEXT, model=model, tokenizer=tokenizer, lens="norm")
    list(attend_many(TEXTS, model=model, tokenizer=tokenizer))
    known = weakref.ref(model)
    del model
    gc.collect()
    assert known() is None


def test_a_hook_acts_under_every_lens(load):
    model, tokenizer = load("bert")
    plain = attend(TEXT, model=model, tokenizer=tokenizer, lens="norm")
    layer = model.encoder.layer[0]
    with layer.register_forward_hook(lambda module, given, output: output * 2):
        steered = attend(TEXT, model=model, tokenizer=tokenizer, lens="norm")
        expected = truth(model, tokenizer, lens="norm")
    np.testing.assert_allclose(steered.weights, expected.weights, atol=1e-5)
    assert np.abs(steered.weights - plain.weights).max() > 1e-3
    again = attend(TEXT, model=model, tokenizer=tokenizer, lens="norm")
    np.testing.assert_array_equal(again.weights, plain.weights)
