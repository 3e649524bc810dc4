"""Folders of models that were made to do harm: one line, a status, and nothing built or spent."""

import json
import math
import os
import re
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from attnviz.models.hugging_face.inputs import chat
from attnviz.models.hugging_face.load import checkpoint, devices, imports
from attnviz.models.open import SHIPPED
from tests.features.vision.tiny_vision import VISION_BUILDERS, picture
from tests.hugging_face.tiny_models import reweigh, rewrite
from tests.invoke import attnviz

CONFIG, TOKENIZER, WORDS = "config.json", "tokenizer_config.json", "tokenizer.json"
PIXELS, WRITING = "preprocessor_config.json", "generation_config.json"
DEEP = "[" * 100_000 + "]" * 100_000
HUGE = 10**9

# What is asked for far beyond what is stored: nothing may be built for it.
CLAIMS: list[tuple[str, str, Any]] = [
    ("bert", "num_hidden_layers", HUGE),
    ("bert", "hidden_size", HUGE),
    ("bert", "vocab_size", HUGE),
    ("bert", "max_position_embeddings", HUGE),
    ("bert", "num_labels", HUGE),
    ("bert", "num_hidden_layers", 10**30),
    ("gpt2", "n_layer", 200_000),
    ("llama", "num_key_value_heads", HUGE),
    ("t5", "num_layers", 200_000),
    ("marian", "encoder_layers", 200_000),
    ("vit", "image_size", HUGE),
    ("vit", "text_config", {"num_hidden_layers": HUGE}),
    ("vit", "depths", [2, HUGE]),
]

# What is of a wrong kind or size, and what the line says; the value DEEP is put in as it stands.
WRONG: list[tuple[str, str, str, Any, str]] = [
    ("bert", CONFIG, "hidden_size", 0, "cannot be loaded"),
    ("bert", CONFIG, "hidden_size", None, "'hidden_size'"),
    ("bert", CONFIG, "hidden_size", DEEP, "nested deeper than 64 levels"),
    ("bert", CONFIG, "num_attention_heads", 0, "cannot be loaded: .*zero"),
    ("bert", CONFIG, "hidden_act", "nonsense", "cannot be loaded: .*nonsense"),
    ("bert", CONFIG, "architectures", {"a": 1}, "'architectures'"),
    ("bert", CONFIG, "id2label", ["a"], "cannot be loaded"),
    ("vit", CONFIG, "id2label", {}, "outputs, and its configuration names 0 labels"),
    ("bert", CONFIG, "attn_implementation", "someone/kernel", "a kernel from elsewhere"),
    ("bert", CONFIG, "model_type", [], "names no 'model_type'"),
    ("bert", CONFIG, "dtype", "float1", "cannot be loaded|float1"),
    ("gpt2", CONFIG, "n_head", 0, "cannot be loaded|cannot run"),
    ("gpt2", CONFIG, "eos_token_id", {}, "'eos_token_id'"),
    ("llama", CONFIG, "rope_parameters", {"rope_type": "nonsense"}, "cannot be loaded"),
    ("t5", CONFIG, "d_kv", 0, "cannot"),
    ("t5", CONFIG, "feed_forward_proj", "a-b-c", "cannot be loaded"),
    ("vit", CONFIG, "patch_size", 0, "cannot be loaded"),
    ("vit", CONFIG, "image_size", {}, "'image_size'"),
    ("bert", TOKENIZER, "model_max_length", "x", "model_max_length|cannot be loaded"),
    ("bert", TOKENIZER, "tokenizer_class", DEEP, "tokenizer of .* cannot be loaded"),
    ("bert", TOKENIZER, "added_tokens_decoder", [1], "tokenizer of .* cannot be loaded"),
    ("bert", TOKENIZER, "unk_token", {"a": None}, "tokenizer"),
    ("bert", WORDS, "model", DEEP, "tokenizer of .* cannot be loaded"),
    ("bert", WORDS, "normalizer", {"type": "nonsense"}, "tokenizer of .* cannot be loaded"),
    ("t5", WORDS, "decoder", [], "tokenizer of .* cannot be loaded"),
    ("marian", WRITING, "forced_bos_token_id", 99_999, "cannot run"),
    ("t5", WRITING, "cache_implementation", "nonsense", "cannot"),
    ("vit", PIXELS, "size", {"height": HUGE, "width": 32}, "1 to 16,384 pixels"),
    ("vit", PIXELS, "size", {"height": 0, "width": 32}, "1 to 16,384 pixels"),
    ("vit", PIXELS, "size", None, "image processor"),
    ("vit", PIXELS, "image_mean", None, "image processor .*fails"),
    ("vit", PIXELS, "rescale_factor", {}, "image processor .*fails"),
    ("vit", PIXELS, "image_processor_type", 3, "image processor"),
]


def read(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="session")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("photo") / "p.png"
    picture().save(path)
    return path


@pytest.fixture(scope="session")
def tiny_vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return VISION_BUILDERS["vit"](tmp_path_factory.mktemp("vit"))


@pytest.fixture
def broken(folder_of, tiny_vit, tmp_path):
    """A copy of a tiny model's folder with entries of one file changed."""

    def spoil(family, file, changes):
        source = tiny_vit if family == "vit" else folder_of(family)
        folder = Path(shutil.copytree(source, Path(mkdtemp(dir=tmp_path)) / family))
        entries = read(folder / file) if (folder / file).exists() else {}
        text = json.dumps(entries | changes)
        (folder / file).write_text(text.replace(json.dumps(DEEP), DEEP))
        return folder

    return spoil


def ask(family, folder, photo, *more):
    if family == "vit":
        return attnviz("image", photo, "--model", folder)
    command = "cross" if family in ("t5", "marian") else "self"
    return attnviz(command, "the red car", "--model", folder, *more)


def refused(done, what):
    assert done.status in (1, 2)
    assert re.search(what, done.mistake), done.mistake
    assert len(done.mistake) < 700
    return str(done.mistake)


@pytest.mark.core
@pytest.mark.parametrize(("family", "name", "value"), CLAIMS)
def test_more_than_is_stored_is_refused_first(family, name, value, broken, photo, monkeypatch):
    def never(*arguments, **named):
        raise SystemError("this was read")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", never)
    folder = broken(family, CONFIG, {name: value})
    line = refused(ask(family, folder, photo), r"is [\d,]+, and its weights are [\d,]+ numbers")
    assert str(folder) in line


@pytest.mark.slow
@pytest.mark.parametrize(("family", "file", "name", "value", "what"), WRONG)
def test_a_wrong_entry_is_one_line(family, file, name, value, what, broken, photo):
    refused(ask(family, broken(family, file, {name: value}), photo), what)


@pytest.mark.parametrize("file", [CONFIG, TOKENIZER, WORDS])
@pytest.mark.parametrize("text", ["", "[]", "3", DEEP, "\udc80"])
def test_a_file_of_something_else_is_one_line(file, text, broken, photo):
    folder = broken("bert", file, {})
    (folder / file).write_bytes(text.encode(errors="surrogateescape"))
    refused(ask("bert", folder, photo), "cannot be loaded|not valid JSON|model_type|deeper")


@pytest.mark.parametrize("file", [CONFIG, TOKENIZER, WORDS, "vocab.txt", "generation_config.json"])
def test_a_file_without_end_is_refused(file, broken, photo):
    folder = broken("bert", CONFIG, {})
    (folder / file).unlink(missing_ok=True)
    (folder / file).symlink_to("/dev/zero")
    refused(ask("bert", folder, photo), "a pipe or a device, not a file")
    (folder / file).unlink()
    if file.endswith(".json"):
        with (folder / file).open("wb") as whole:
            whole.truncate(1 << 29)
        refused(ask("bert", folder, photo), "has 536,870,912 bytes")


def test_greedy_outputs_and_odd_tokens(broken, photo):
    wild = {"num_return_sequences": 10**6, "return_dict_in_generate": True, "num_beams": 10**6}
    wild |= {"do_sample": True, "temperature": float("nan"), "max_length": HUGE}
    folder = broken("gpt2", WRITING, wild)
    assert ask("gpt2", folder, photo, "--generate", "3").status == 0
    folder = broken("bert", CONFIG, {"vocab_size": 12})
    reweigh(folder, lambda name, one: one[:12].clone() if "word_embeddings" in name else one)
    refused(ask("bert", folder, photo), r"the tokenizer does not belong .*knows 0 to 11")
    folder = broken("bert", WORDS, {})
    entries = read(folder / WORDS)
    entries["model"]["vocab"]["[CLS]"] = 2**31
    added = [item for item in entries["added_tokens"] if item["id"] != 2]
    rewrite(folder / WORDS, model=entries["model"], added_tokens=added)
    (first, *_) = attnviz("self", "the", "--model", folder, "-f", "json").json()["maps"]
    assert first["query_tokens"][0]["text"] == "<2>"


def test_merges_and_growing_texts_are_told(copy_of, photo, broken):
    for kind in ("gpt2", "roberta"):
        for as_text in (False, True):
            folder = copy_of(kind)
            model = read(folder / WORDS)["model"] | {"continuing_subword_prefix": "##"}
            if as_text:
                model["merges"] = [" ".join(pair) for pair in model["merges"]]
            rewrite(folder / WORDS, model=model)
            refused(
                ask(kind, folder, photo),
                r"begin with '##', and those of its merges do not: set its",
            )
    folder = copy_of("gpt2")
    made = Tokenizer(models.BPE(continuing_subword_prefix="##"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, continuing_subword_prefix="##")
    made.train_from_iterator(["the nurse thanked the doctor"] * 9, trainer)
    made.save(str(folder / WORDS))
    checkpoint.check_growth(folder)
    for part in ("normalizer", "decoder"):
        more = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 50}
        steps = {"type": "Sequence", f"{part}s": [more] * 6}
        folder = broken("bert", WORDS, {part: steps})
        said = refused(
            ask("bert", folder, photo), "would make up to 15,625,000,000 characters of one"
        )
        assert "tokenizer.json" in said


PIECES = st.text("abc", min_size=1, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("String"), PIECES, st.text("abcd", max_size=4)),
        st.tuples(
            st.just("Regex"), st.sampled_from(["a*", "(?=b)", "[ac]", "\\b", "."]), st.text("abcd")
        ),
        st.tuples(st.just("Prepend"), PIECES, st.just("")),
    ),
    max_size=4,
)


@given(steps=STEPS, text=st.text("abc", min_size=1, max_size=6))
def test_no_text_grows_by_more_than_the_bound(steps, text):
    documents: list[Any] = []
    for kind, pattern, content in steps:
        one = {"pattern": {kind: pattern}, "content": content}
        documents.append({"prepend": pattern} if kind == "Prepend" else one)
    bound = checkpoint._growth_of({"normalizers": documents})
    made = normalizers.Sequence(
        [
            normalizers.Prepend(pattern)
            if kind == "Prepend"
            else normalizers.Replace(Regex(pattern) if kind == "Regex" else pattern, content)
            for kind, pattern, content in steps
        ]
    ).normalize_str(text)
    assert len(made) <= bound * (len(text) + 1)


def test_what_others_write_meanwhile_is_kept(capfd):
    with imports.quiet_native():
        os.write(2, b"a word")
    assert capfd.readouterr().err == "a word"


@pytest.mark.slow
def test_what_tokenizers_print_stays_off_stdout(broken, photo, capfd, tmp_path):
    folder = broken("t5", WORDS, {})
    added = read(folder / WORDS)["added_tokens"]
    added[0]["\x1b[0m"] = ""  # an option that it does not know, which it prints
    rewrite(folder / WORDS, added_tokens=added)
    assert ask("t5", folder, photo).status == 0
    assert capfd.readouterr().out == ""
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}
    folder = broken("bert", WORDS, {"pre_tokenizer": slow | {"invert": False}})
    capfd.readouterr()  # what the making of the folder said
    done = attnviz("self", "a" * 40 + "!", "--model", folder)
    refused(done, "the tokenizer in .* fails on this text: .*retry-limit")
    assert capfd.readouterr().err == ""  # where Rust writes its own trace


def test_names_and_references_that_lead_nowhere(tmp_path, monkeypatch):
    for name in ("x" * 5000, "~no-such-user/x", "a\0b"):
        refused(attnviz("self", "a", "--model", name), "there (is|can be) no folder")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--a" / "refs").mkdir(parents=True)
    (tmp_path / "models--a" / "snapshots").mkdir()
    for commit in (b"\xff\xfe", b"x" * 5000, b"a\0b", b"../../.."):
        (tmp_path / "models--a" / "refs" / "main").write_bytes(commit)
        assert len(attnviz("models").lines) == len(SHIPPED)
        refused(attnviz("self", "a", "--model", "a"), "is neither a folder nor in the local cache")


def test_claims_are_compared_with_shards_and_pickles(broken, photo):
    folder = broken("bert", CONFIG, {"num_hidden_layers": 200_000})
    split(folder, "{}")
    line = refused(ask("bert", folder, photo), "'num_hidden_layers' is 200,000")
    whole = len(load_file(folder / "0.safetensors")) + len(load_file(folder / "1.safetensors"))
    assert f"{whole} tensors" in line
    folder = broken("bert", CONFIG, {"num_hidden_layers": 200_000})
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    refused(ask("bert", folder, photo, "--allow", "pickle"), "'num_hidden_layers' is 200,000")


def test_a_pickle_runs_no_code_even_where_it_is_allowed(broken, photo, tmp_path):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)  # what a pickle may hold: a call

    folder = broken("bert", CONFIG, {})
    torch.save({"x": Bomb()}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    refused(ask("bert", folder, photo), "--allow pickle")
    refused(ask("bert", folder, photo, "--allow", "pickle"), "cannot be loaded")
    assert not (tmp_path / "ran").exists()


def split(folder, where, to=None):
    """Put a model's weights into two files, named by an index as `where` puts it."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = dict[str, str]()
    for half in (0, 1):
        part = dict(list(tensors.items())[half::2])
        file = f"{half}.safetensors"
        save_file(part, (to or folder) / file, metadata={"format": "pt"})
        names |= dict.fromkeys(part, where.format(file))
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_indices_and_shapes_must_fit(broken, photo):
    for weights in ("x", {"a": 3}, {}):
        folder = broken("bert", CONFIG, {})
        (folder / "model.safetensors").unlink()
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": weights}))
        refused(ask("bert", folder, photo), "lacks 0 of the 0|names files that are no text")
    for where in ("../{}", "/{}", " ", "a\0b", "link{}"):
        folder = broken("bert", CONFIG, {})
        around = folder.parent
        split(folder, where if where[:1] != "/" else f"{around}/{{}}", to=around)
        for half in (0, 1):
            (folder / f"link{half}.safetensors").symlink_to(around / f"{half}.safetensors")
        refused(ask("bert", folder, photo), "names a file outside its folder")
    for shape, place in (([HUGE, HUGE], [0, 4]), ([1], [math.inf, 4]), ([math.inf], [0, 4])):
        folder = broken("bert", CONFIG, {})
        header = {"x": {"dtype": "F32", "shape": shape, "data_offsets": place}}
        text = json.dumps(header).encode()
        weights = len(text).to_bytes(8, "little") + text + bytes(4)
        (folder / "model.safetensors").write_bytes(weights)
        refused(ask("bert", folder, photo), "not a complete safetensors file")


def test_a_hub_cache_may_link_to_its_blobs(folder_of, tmp_path, photo):
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    folder.parent.mkdir()
    shutil.copytree(folder_of("bert"), folder)
    split(folder, "{}")
    shutil.copytree(folder, blobs)
    for path in list(folder.iterdir()):
        path.unlink()
        path.symlink_to(f"../../blobs/{path.name}")
    assert ask("bert", folder, photo).status == 0


TEMPLATES = {
    "{{ ''.__class__.__mro__ }}": "unsafe",
    "{{ 'a' * 10**10 }}": "MemoryError",
    "{{ 'a' * 2 * 10**7 }}": "20,000,000 characters",
}


@pytest.mark.core
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_hostile_template_is_refused(template, broken, photo):
    folder = broken("gpt2", TOKENIZER, {"chat_template": template})
    line = refused(ask("gpt2", folder, photo, "--chat"), TEMPLATES[template])
    assert f"the chat template of '{folder}' fails" in line


@pytest.mark.slow
def test_templates_are_made_apart_and_stopped(folder_of, broken, photo, monkeypatch):
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder_of("gpt2"))
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n"
        "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    )
    for text in ("The car", "a\nb “c” \x85\u2028", "{{ 1 }}"):
        turn = [{"role": "user", "content": text}]
        expected = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        assert chat.render_messages(tokenizer, turn, "x") == expected
    monkeypatch.setattr(chat, "TEMPLATE_SECONDS", 1)  # of the processor, not of the clock
    folder = broken("gpt2", TOKENIZER, {"chat_template": "{{ 9**(9**9) }}"})
    refused(ask("gpt2", folder, photo, "--chat"), "was stopped: it ran for more than 1 seconds")


NAME = "mo\x1b[31mdel\u202e\x85\t\n"


def test_names_reach_no_output_raw(folder_of, tmp_path, monkeypatch):
    repository = tmp_path / f"models--{NAME}\udc80"
    folder = repository / "snapshots" / "abc"
    shutil.copytree(folder_of("bert"), folder)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    shown = [attnviz("models", "-f", name) for name in ("table", "tsv", "json")]
    assert [done.status for done in shown] == [0, 0, 0]
    for done in shown:
        assert not set(done.text) & {"\x1b", "\x85", "\u202e"}
    assert [len(done.lines) for done in shown[:2]] == [1 + len(SHIPPED), 2 + len(SHIPPED)]
    assert shown[2].json()["rows"][len(SHIPPED)]["model"] == f"{NAME}\udc80"
    folder = Path(shutil.copytree(folder_of("bert"), tmp_path / NAME))
    for options in (["-f", "json"], ["-f", "table"], ["--html", tmp_path / "p.html"]):
        done = attnviz("self", "the car", "--model", folder, *options)
        assert done.status == 0
        assert not set(done.text) & {"\x1b", "\x85", "\u202e"}
    assert not set((tmp_path / "p.html").read_text()) & {"\x1b", "\x85", "\u202e"}
    assert "␛[31m" in attnviz("self", "x " * 90, "--model", folder).mistake


def test_panics_are_one_line_and_interruptions_are_none():
    class PanicException(BaseException): ...

    with (
        pytest.raises(devices.ModelError, match="it fails: of Rust"),
        devices.library_errors("it fails"),
    ):
        raise PanicException("of Rust\nsecond line")
    for kind in (KeyboardInterrupt, SystemExit):  # no failures of a library
        with pytest.raises(kind), devices.library_errors("it fails"):
            raise kind


def test_a_bug_of_attnviz_keeps_its_traceback(broken, photo, monkeypatch):
    def bug(*arguments):
        raise AssertionError("a bug")

    monkeypatch.setattr(checkpoint, "check_claims", bug)
    with pytest.raises(AssertionError, match="a bug"):
        ask("bert", broken("bert", CONFIG, {}), photo)
    monkeypatch.undo()
    monkeypatch.setattr("attnviz.models.hugging_face.light_opening.display_name", bug)
    with pytest.raises(AssertionError, match="a bug"):
        ask("bert", broken("gpt2", CONFIG, {}), photo)
