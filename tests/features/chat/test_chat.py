"""Which parts of a chat its answer looks at, against a slow loop over eager weights."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import attnviz
from attnviz.core.errors import AttnvizError
from tests.features.chat.models import CHAT, chat_model, write_chat
from tests.invoke import attnviz as run

ASKED = [*CHAT, {"role": "user", "content": "And the blue car? Is it slow?"}]
SENTENCES = ("The car is red.", "The paper is not.", "It was published.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chat_model(tmp_path_factory.mktemp("chat") / "model")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_chat(tmp_path_factory.mktemp("file") / "chat.jsonl", CHAT)


def slow_shares(folder, chat, text, sentences):
    """Names, lengths, and for each head what each sentence gives each part: token by token."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    read = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    with torch.no_grad():
        whole = model(torch.tensor([read["input_ids"]]), output_attentions=True).attentions
    owners, end = [None] * len(text), 0
    for number, message in enumerate(chat):
        start = text.index(message["content"], end)
        end = start + len(message["content"])
        inner = message["content"].strip()
        start = text.index(inner, start)
        owners[start : start + len(inner)] = [number] * len(inner)
    part_of = []
    for token, (first, last) in zip(read["input_ids"], read["offset_mapping"], strict=True):
        own = [owners[n] for n in range(first, last) if owners[n] is not None]
        special = token in tokenizer.all_special_ids
        part_of.append(len(chat) if special or not own else own[0])
    rows, end = [], text.index(chat[-1]["content"], end - len(chat[-1]["content"]))
    for sentence in sentences:  # with the space before it
        first, end = end, text.index(sentence, end) + len(sentence)
        rows.append([
            n for n, (a, b) in enumerate(read["offset_mapping"])
            if part_of[n] < len(chat) and a < end and b > first
        ])  # fmt: skip
    cells = np.zeros((len(whole), whole[0].shape[1], len(rows), len(chat) + 1))
    for layer, weights in enumerate(whole):
        for head in range(weights.shape[1]):
            for number, row in enumerate(rows):
                for query in row:
                    for key, part in enumerate(part_of):
                        cells[layer, head, number, part] += float(weights[0, head, query, key])
                cells[layer, head, number] /= len(row)
    return part_of, rows, cells


def test_shares_are_those_of_a_slow_loop(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    found = attnviz.attend(CHAT, model=model, tokenizer=tokenizer).value
    text = tokenizer.apply_chat_template(CHAT, tokenize=False)
    part_of, rows, cells = slow_shares(folder, CHAT, text, SENTENCES)
    assert [one.name for one in found.parts] == ["system", "user 1", "assistant 1", "template"]
    assert [one.tokens for one in found.parts] == np.bincount(part_of).tolist()
    assert [(one.text, one.first, one.tokens) for one in found.rows] == [
        (sentence, row[0], len(row)) for sentence, row in zip(SENTENCES, rows, strict=True)
    ]
    shares = [one.shares for one in found.rows]
    np.testing.assert_allclose(shares, cells.mean(axis=(0, 1)), atol=1e-5)
    sizes = [len(row) for row in rows]
    by_head = np.average(cells, axis=2, weights=sizes)
    for head in found.heads:
        own = by_head[int(head.layer), int(head.head)]
        np.testing.assert_allclose(head.shares, own, atol=1e-5)
        gap = np.abs(own - by_head.mean(axis=(0, 1))).sum() / 2
        assert head.difference == pytest.approx(gap, abs=1e-5)
    differences = [head.difference for head in found.heads]
    assert differences == sorted(differences, reverse=True)
    for part, one in enumerate(found.parts):
        assert one.share == pytest.approx(by_head.mean(axis=(0, 1))[part], abs=1e-5)
        looks = [part_of[: query + 1].count(part) / (query + 1) for row in rows for query in row]
        assert one.even == pytest.approx(np.mean(looks))
        assert one.over == pytest.approx(one.share / one.even)


@pytest.mark.parametrize(
    "how", [("--head", "2.1"), ("--layer", "1"), ("--layer", "0", "--head", "3")]
)
def test_heads_are_chosen_as_in_maps(how, folder, file):
    asked = ("self", "--chat", file, "--model", folder, "-f", "json", "-q")
    every = {(one["layer"], one["head"]): one["shares"] for one in run(*asked).json()["heads"]}
    found = run(*asked, *how).json()
    own = [(one["layer"], one["head"]) for one in found["heads"]]
    expected = {"2.1": [(2, 1)], "1": [(1, n) for n in range(4)], "3": [(0, 3)]}[how[-1]]
    assert sorted(own) == expected
    mean = np.mean([every[one] for one in own], axis=0)
    np.testing.assert_allclose([one["share"] for one in found["parts"]], mean)


def test_one_document_in_every_form(folder, file, tmp_path):
    asked = ("self", "--chat", file, "--model", folder, "-q")
    document = run(*asked, "-f", "json").json()
    stdin = file.read_bytes()
    assert run("self", "--chat", "-", *asked[3:], "-f", "json", stdin=stdin).json() == document
    assert run("self", "--chat", "--input", *asked[2:], "-f", "json").json() == document
    parts = attnviz.attend(CHAT, model=str(folder))
    assert parts.to_json()["rows"] == document["rows"]
    rows = [one for one in parts.to_rows() if one["row"] == "0"]
    assert [one["share"] for one in rows] == document["rows"][0]["shares"]
    page, picture = tmp_path / "a.html", tmp_path / "a.png"
    run(*asked, "--html", page, "--picture", picture, "-f", "none")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    for words in ("user 1", "Is the paper red?", *SENTENCES, "difference"):
        assert words in page.read_text()


def test_tables_and_bands_are_as_wide_as_they_should_be(folder):
    parts = attnviz.attend(CHAT, model=str(folder))
    wide, narrow = parts.table(80), parts.table(40)
    assert "The paper is not.     ." in wide
    assert "The paper is not. → " in narrow
    assert narrow.count("·") == 2 + 2 * len(SENTENCES)  # the title's, and between three parts each
    for table, width in ((wide, 80), (narrow, 40)):
        assert max(map(len, table.splitlines())) <= width
        assert "heads that differ most from the mean" in table
    figure = parts.picture("parts")
    boxes = [one for one in figure.axes[0].patches if one.get_width() > 20]
    by_row = {}
    for box in boxes:
        by_row.setdefault(box.get_y(), []).append(box.get_width())
    bars = [by_row[y] for y in sorted(by_row)]
    report = parts.value
    shares = [[one.even for one in report.parts], [one.share for one in report.parts]]
    shares += [one.shares for one in report.rows]
    for bar, own in zip(bars, shares, strict=False):
        width = sum(bar)
        large = [share for share in own if share * width > 20]
        np.testing.assert_allclose(np.array(bar) / width, np.array(large) / sum(large), atol=0.03)


def test_the_model_writes_the_next_turn(folder, tmp_path):
    file = write_chat(tmp_path / "chat.json", {"messages": ASKED})
    asked = ("self", "--chat", file, "--model", folder, "--generate", "5", "-f", "json", "-q")
    found = run(*asked).json()
    assert (found["looks"], found["written"], found["has_answer"]) == ("assistant 2", True, True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    text = tokenizer.apply_chat_template(ASKED, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    written = model.generate(ids, max_new_tokens=5, do_sample=False)[0, ids.shape[1] :].tolist()
    written = written[:-1] if written[-1] == tokenizer.eos_token_id else written
    assert found["tokens"] == ids.shape[1] + len(written)
    assert sum(one["tokens"] for one in found["rows"]) == len(written)
    refused = run("self", "--chat", write_chat(tmp_path / "b.json", CHAT), *asked[3:])
    assert "the chat ends in an assistant's turn" in refused.mistake


def test_without_an_answer_the_last_turn_looks(folder, tmp_path):
    file = write_chat(tmp_path / "chat.json", ASKED)
    done = run("self", "--chat", file, "--model", folder, "-f", "json")
    found = done.json()
    assert (found["looks"], found["has_answer"]) == ("user 2", False)
    assert [one["text"] for one in found["rows"]] == [
        "And the blue car?",
        "Is it slow?",
        "(next token)",
    ]
    assert found["rows"][-1]["first"] == found["tokens"] - 1
    assert "the chat has no answer yet" in done.err


def test_groups_of_a_file_are_parts(folder, file, tmp_path):
    asked = ("self", "--chat", file, "--model", folder, "-f", "json", "-q")
    whole = run(*asked).json()
    first, path = whole["rows"][1]["first"], tmp_path / "groups.txt"
    path.write_text(f"topic: red car is fast\nIs the paper red?\nit: @{first}-{first + 2}\n")
    found = run(*asked, "--group", path).json()
    names = ["topic", "Is the paper red?", "it", "rest", "template"]
    assert [one["name"] for one in found["parts"]] == names
    assert found["parts"][2]["tokens"] == 3
    assert found["parts"][-1] == whole["parts"][-1]
    shares = [sum(one["share"] for one in each["parts"][:-1]) for each in (found, whole)]
    assert shares[0] == pytest.approx(shares[1], abs=1e-6)
    path.write_text("The blue car\n")
    assert "group 1, 'The blue car', is not found in order" in run(*asked, "--group", path).mistake


def test_words_never_cross_special_tokens(folder, file):
    asked = ("self", "--chat", file, "--model", folder, "-f", "json", "-q")
    words = run(*asked, "--group", "words").json()
    assert " ".join(one["text"] for one in words["rows"]) == (
        "The car is red . The paper is not . It was published ."
    )
    assert words["unit"] == "words"
    tokens = run(*asked, "--pieces").json()
    assert tokens["unit"] == "tokens"
    assert all(one["tokens"] == 1 for one in tokens["rows"])
    sizes = [one["tokens"] for one in words["rows"]]
    assert sum(sizes) == len(tokens["rows"])
    for name in ("share", "even"):
        one, other = ([part[name] for part in each["parts"]] for each in (words, tokens))
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    "how", [("--special", "drop"), ("-f", "links"), ("--rows", "0-3"), ("--lens", "rollout")]
)
def test_options_about_maps_show_maps(how, folder, file):
    done = run("self", "--chat", file, "--model", folder, "-q", *how)
    assert done.status == 0
    assert "heads that differ most" not in done.text


def test_the_template_and_special_tokens_are_no_words(tmp_path, folder):
    folder = chat_model(tmp_path / "model", "invents a system prompt")
    parts = attnviz.attend(CHAT[1:], model=str(folder))
    assert [one.name for one in parts.value.parts] == ["user 1", "assistant 1", "template"]
    (note,) = [one for one in parts.value.notes if "words of its own" in one]
    assert "“system You are Someone, made by nobody." in note
    assert "words of its own" in parts.table()
    answer = "The </s> car is red. Is </s> it fast </s>."
    parts = attnviz.attend([CHAT[1], {"role": "assistant", "content": answer}], model=str(folder))
    texts = [one.text for one in parts.value.rows]
    assert texts == ["The", "car is red.", "Is", "it fast", "."]


def test_half_precision_reads_the_same_to_its_digits(folder, file):
    asked = ("self", "--chat", file, "--model", folder, "-f", "json", "-q")
    whole, half = run(*asked).json(), run(*asked, "--dtype", "bfloat16")
    if "pack_vnni2" in half.err:  # what torch says where it is told of fewer vectors than there are
        pytest.skip("torch cannot run bfloat16 on this processor")
    half = half.json()
    for one, other in zip(whole["parts"], half["parts"], strict=True):
        assert other["share"] == pytest.approx(one["share"], abs=0.01)


def test_files_of_several_chats_or_none(folder, tmp_path):
    assert "there is no file 'no.jsonl'" in run("self", "no.jsonl", "--chat", "-m", folder).mistake
    file = tmp_path / "chats.jsonl"
    chats = [{"messages": CHAT, "id": "first"}, {"messages": ASKED, "id": "second"}]
    file.write_text("\n".join(map(json.dumps, chats)))
    done = run("self", "--chat", file, "--model", folder, "-f", "jsonl", "-q")
    assert [json.loads(line)["id"] for line in done.lines] == ["first", "second"]


def test_python_gives_the_maps_too(folder):
    parts = attnviz.attend(CHAT, model=str(folder))
    text = AutoTokenizer.from_pretrained(folder).apply_chat_template(CHAT, tokenize=False)
    assert parts.attention.text == text
    words = [token.text for token in parts.attention.words().main.key_tokens]
    assert all(word == "</s>" for word in words if "</s>" in word)
    assert isinstance(
        attnviz.attend({"messages": CHAT}, model=str(folder), lens="rollout"), attnviz.Result
    )
    with pytest.raises(AttnvizError, match="layer 9 does not exist"):
        attnviz.attend(CHAT, model=str(folder), layer="9")
