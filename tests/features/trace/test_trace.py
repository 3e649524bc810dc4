"""Which sentences of a reasoning carry it: slow loops, planted sentences, forms, resuming."""

import json
import re

import numpy as np
import pytest
import torch
from scipy import stats

import attnviz
from attnviz.core.errors import AttnvizError
from attnviz.features.trace import anchors, passes, resampling
from attnviz.features.trace.sentences import Transcript, cut_sentences, read_transcript
from attnviz.models.hugging_face.inputs.tokenization import tokenize
from attnviz.models.hugging_face.text_model import load_model
from tests.features.trace.copier import planted_text, save_copier
from tests.hugging_face import tiny_models
from tests.invoke import attnviz as run

WORDS = "the red car is fast and slow. Who walks? Supervising students! The paper is published. "
TEXT = f"Which car?\n\n<think>\n{WORDS}The car is red.\n\nSo it is. Walking reads.\n</think>\nred"


@pytest.fixture(scope="module")
def copier(tmp_path_factory):
    return save_copier(tmp_path_factory.mktemp("copier"))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One is first. Two is next? Three", ["One is first.", "Two is next? Three"]),
        ("First.Not cut 3.5 here!\nThen a line", ["First.Not cut 3.5 here!", "Then a line"]),
        ("So. Then we go on here. Ok.", ["So. Then we go on here. Ok."]),
        ("A blank line\n\nends it, a\nline not", ["A blank line", "ends it, a\nline not"]),
        (" \n\n Spaces before. Hm. No. Then it.\n\n", ["Spaces before.", "Hm. No. Then it."]),
        ("nothing", ["nothing"]),
        (" \n ", []),
    ],
)  # fmt: skip
def test_sentences_are_cut_as_published(text, sentences):
    found = cut_sentences(text)
    assert [one.text for one in found] == sentences
    assert all(text[one.start : one.end] == one.text for one in found)


def test_the_reasoning_stands_between_its_marks():
    whole = Transcript("", TEXT, len("Which car?\n\n"))
    assert whole.sentences()[0].text.startswith("the red car")
    assert whole.sentences()[-1].text == "So it is. Walking reads."
    assert TEXT[slice(*whole.answer)].strip() == "red"
    opened = Transcript("", "Which car? <think> It was red. So I say it.</think>red", 19)
    assert [one.text for one in opened.sentences()] == ["It was red.", "So I say it."]
    assert Transcript("", "All of it is thought.", 0).answer is None


def test_messages_are_read_by_the_template(tmp_path):
    file = tmp_path / "chat.jsonl"
    turns = [("user", "Which?"), ("assistant", "<think>It is red.</think>\nred")]
    lines = [json.dumps({"role": role, "content": content}) for role, content in turns]
    file.write_text("\n".join(lines))

    def render(messages, tools):  # as templates do that open the reasoning
        said = [f"<{one['role']}>{one['content']}" for one in messages]
        return "".join(said) + "<assistant><think>\n"

    found = read_transcript(file, "", render, own=False)
    assert found.text == "<user>Which?<assistant><think>It is red.</think>\nred"
    assert found.rendered
    assert read_transcript(file, "", render, own=True).text.endswith("red<assistant><think>\n")
    turn = {"role": "assistant", "content": "red", "reasoning_content": "It is red."}
    file.write_text(json.dumps([{"role": "user", "content": "Which?"}, turn]))
    apart = read_transcript(file, "", render, own=False)
    assert apart.text == "<user>Which?<assistant><think>\nIt is red.\n</think>\n\nred"
    with pytest.raises(AttnvizError, match="add --chat"):
        read_transcript(file, "", None, own=False)
    file.write_text(lines[0])
    with pytest.raises(AttnvizError, match="does not end with the assistant's turn"):
        read_transcript(file, "", render, own=False)


def test_vertical_scores_are_those_of_a_slow_loop():
    drawn = np.random.default_rng(0)
    means = np.round(drawn.random((2, 3, 9, 9)), 1)
    for control in (False, True):
        found = anchors.vertical_scores(means, control_depth=control)
        for head in np.ndindex(2, 3):
            slow = means[head].copy()
            slow[np.triu_indices(9, -3)] = np.nan
            if control:
                for row in slow:
                    there = ~np.isnan(row)
                    row[there] = stats.rankdata(row[there]) / max(there.sum(), 1)
            expected = [np.nanmean(slow[n + 4 :, n]) if n < 5 else np.nan for n in range(9)]
            np.testing.assert_allclose(found[head], expected)
        peaks = stats.kurtosis(found[..., :5], axis=-1, fisher=True, bias=True)
        np.testing.assert_allclose(anchors.kurtosis(found), peaks)
    assert anchors.receivers([np.array([[1.0, 5.0], [np.nan, 2.0]])]) == [(0, 1), (1, 1), (0, 0)]


def test_answers_are_found_and_compared():
    some, others = ["3", "3", "4"], ["4", "4", ""]
    names = ["", "3", "4"]
    first = np.array([some.count(one) + 1 for one in names]) / 6
    second = np.array([others.count(one) + 1 for one in names]) / 6
    assert anchors.divergence(some, others) == pytest.approx(stats.entropy(first, second))
    assert np.isnan(anchors.divergence([], others))
    text = r"\boxed{1} then \boxed{\frac{1}{2}} and \boxed{ 3 }"
    assert resampling.final_answer(text, None) == "3"
    assert resampling.final_answer(r"\boxed{\frac{1}{2}}.", None) == r"\frac{1}{2}"
    assert resampling.final_answer(r"\boxed{1", None) == ""
    assert resampling.final_answer("= 4, = 5.", re.compile(r"= (\d)")) == "5"
    assert resampling.final_answer("4, 5", re.compile(r"\d")) == "5"
    with pytest.raises(AttnvizError, match="no regular expression"):
        resampling.read_pattern("(")


def slow_effects(model, ids, spans, number, temperature):
    """KL of every row with a sentence's keys off for later rows, by a 4-D mask and one pass."""
    count = len(ids)
    first, stop = spans[number]
    seen = torch.ones(count, count, dtype=torch.bool).tril()
    rows = []
    for hides in (False, True):
        mask = seen.clone()
        if hides:
            mask[stop:, first:stop] = False
        full = torch.zeros(1, 1, count, count).masked_fill(~mask, torch.finfo(torch.float32).min)
        window = getattr(model.config, "sliding_window", None)
        if window is not None:  # a mask for each kind of layer
            near = mask & torch.ones_like(mask).triu(1 - window)
            short = torch.zeros_like(full).masked_fill(~near, torch.finfo(torch.float32).min)
            full = {"full_attention": full, "sliding_attention": short}
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), attention_mask=full).logits[0]
        rows.append((logits.double() / temperature).log_softmax(-1))
    plain, other = rows
    return (plain.exp() * (plain - other)).sum(-1).numpy()


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2"])
def test_every_measure_is_that_of_plain_transformers(kind, tmp_path, monkeypatch):
    """Slow loops: eager weights cell by cell, and a pass of the whole text for each sentence."""
    monkeypatch.setattr(passes, "ROWS", 7)  # several blocks
    folder = getattr(tiny_models, kind)(tmp_path / kind)
    source = load_model(str(folder), with_head=True)
    text = ("red is a car. Who walks a lot? " * 3)[: 60 if kind == "gpt2" else 90]
    sentences, read = cut_sentences(text), tokenize(source.tokenizer, text)
    own = passes.SentencePasses(source, read, sentences)
    model = load_model(str(folder), with_head=True).model
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(input_ids=torch.tensor([read.ids]), output_attentions=True).attentions
    for layer, weights in enumerate(maps):
        means = np.array([
            [[float(head[a:b, c:d].double().mean()) for c, d in own.spans] for a, b in own.spans]
            for head in weights[0]
        ])  # fmt: skip
        np.testing.assert_allclose(own.vertical[layer], anchors.vertical_scores(means), atol=1e-6)
    assert own.remembers
    for number in range(len(sentences)):
        slow = slow_effects(model, read.ids, own.spans, number, 0.6)
        found = own.effects(number, 0.6)
        np.testing.assert_allclose(found, slow, atol=1e-6, rtol=1e-4)
        logs = passes.log_kl(found, own.spans, number)
        for later, (first, stop) in enumerate(own.spans):
            if later > number:
                assert logs[later] == pytest.approx(
                    np.log(slow[first:stop] + 1e-9).mean(), abs=2e-3
                )
            else:
                assert np.isnan(logs[later])
    own.__dict__["remembers"] = False  # as of a model that goes on from no cache
    slow = slow_effects(model, read.ids, own.spans, 0, 0.6)
    np.testing.assert_allclose(own.effects(0, 0.6), slow, atol=1e-6, rtol=1e-4)


def test_narrow_heads_fold_many_sentences_at_once(tmp_path, monkeypatch):
    """With zeros behind their queries and keys they weigh the same, in fewer calls."""
    source = load_model(str(tiny_models.llama(tmp_path / "llama")), with_head=True)
    text = "red is a car. " * 20
    read, sentences = tokenize(source.tokenizer, text), cut_sentences(text)
    monkeypatch.setattr(passes, "WIDTH", 12)  # two rounds of 16
    wide = passes.SentencePasses(source, read, sentences)
    monkeypatch.setattr(passes, "pad_heads", lambda call, _: (call, call.value.shape[-1]))
    plain = passes.SentencePasses(source, read, sentences)
    np.testing.assert_allclose(wide.vertical, plain.vertical, atol=1e-6)


def test_a_planted_sentence_is_found_in_twenty_texts(copier):
    """Later sentences copy pieces of it, each another, and no other word comes twice."""
    texts = [planted_text(seed) for seed in range(20)]
    found = attnviz.sources([text for text, _ in texts], of="output", model=str(copier)).value
    for report, (_, planted) in zip(found, texts, strict=True):
        for score in ("receiver", "effect"):
            values = [getattr(one, score) for one in report.sentences]
            assert int(np.nanargmax(values)) + 1 == planted
        assert report.sentences[planted - 1].marks == ("receiver", "effect")
        needs = [one.needs[0] for one in report.sentences[planted:]]
        assert needs == [planted] * len(needs)
        assert (report.heads[0].layer, report.heads[0].head) == ("1", 0)
    first = found[0]
    matrix = first.matrix()
    np.testing.assert_allclose(np.nanmean(matrix[1:], axis=1), 0, atol=1e-9)
    assert first.passes < len(first.sentences) / 2 + 2


def test_every_form_shows_the_sentences(copier, tmp_path):
    text, planted = planted_text(1)
    file, page, picture = (tmp_path / name for name in ("a.txt", "a.html", "a.svg"))
    file.write_text(f"word001 word002\n<think>\n{text}\n</think>\nword003 word004")
    asked = ("sources", file, "--of", "output", "--model", copier)
    done = run(*asked, "--html", page, "--picture", picture)
    assert done.status == 0
    assert "sentences is now hidden: about" in done.err
    line = next(line for line in done.text.splitlines() if line.startswith(f" {planted}  ●"))
    assert line.split()[2:4]
    document = run(*asked, "-f", "json").json()
    assert document["sentences"][planted - 1]["marks"] == ["receiver", "effect"]
    assert [len(row) for row in document["links"]] == [*range(11)]
    assert document["sentences"][0]["answer_kl"] is not None
    rows = run(*asked, "-f", "tsv").rows
    assert float(rows[planted][3]) == document["sentences"][planted - 1]["effect"]
    html = page.read_text("utf-8")
    assert f'<a href="#sentence-{planted}">{planted}</a>' in html
    assert f'id="sentence-{planted}"' in html
    assert "word" in picture.read_text("utf-8")
    ranked = run(*asked, "--control-depth", "--temperature", 0.6, "-f", "json").json()
    assert ranked["control_depth"]
    assert ranked["sentences"][0]["receiver"] != document["sentences"][0]["receiver"]


def test_the_models_own_output_is_cut_too(copier):
    prompt = "word009 word001 word002 word003 word005 word006 . word001"
    asked = ("sources", prompt, "--of", "output", "--generate", 40, "--model", copier, "-f", "json")
    document = run(*asked).json()
    texts = [one["text"] for one in document["sentences"]]
    assert texts[:2] == [
        "word002 word003 word005 word006 .",
        "word001 word002 word003 word005 word006 .",
    ]
    assert document["prompt_tokens"] == 8
    assert document["sentences"][-1]["needs"]


def test_continuations_are_drawn_and_repeat_for_a_seed(tmp_path):
    source = load_model(str(tiny_models.llama(tmp_path / "llama")), with_head=True)
    text = "red is a car. Who walks a lot? red is a car. "
    own = passes.SentencePasses(source, tokenize(source.tokenizer, text), cut_sentences(text))
    texts = own.continuations(9, 3, 12, 0.6, seed=4)
    assert len({*texts}) == 3
    own.__dict__["remembers"] = False
    assert own.continuations(9, 3, 12, 0.6, seed=4) == texts
    assert own.continuations(9, 3, 12, 0.6, seed=5) != texts
    shares = torch.tensor([[0.6, 0.3, 0.06, 0.04]]).log()
    generator = torch.Generator().manual_seed(0)
    found = torch.cat([passes.sample(shares, 1.0, generator) for _ in range(2000)])
    counts = torch.bincount(found, minlength=4) / len(found)
    assert counts[3] == 0  # behind the first three there is none of .95 left
    np.testing.assert_allclose(counts[:3], np.array([0.6, 0.3, 0.06]) / 0.96, atol=0.03)
    sharp = torch.cat([passes.sample(shares, 0.1, generator) for _ in range(50)])
    assert not sharp.any()


def test_other_continuations_are_compared_by_their_answers():
    places = {"It is red.": 0.0, "It is crimson.": 0.3, "Go home now.": 1.5}

    def meaning(text):
        return np.array([np.cos(places[text]), np.sin(places[text])])

    texts = ["It is crimson. So it is 3.", "Go home now. I never say.", "Go home now.", ""]
    found = resampling.compare(
        "It is red.", texts, (["3", "", "4", ""], ["3", "3", "4", "3"]), "3", meaning
    )
    assert found.different == 0.75
    assert (found.accuracy_without, found.accuracy_with) == (0, 0.75)
    assert found.kl == pytest.approx(anchors.divergence(["", "4", ""], ["3", "3", "4", "3"]))
    assert found.instead in ("Go home now.", "")
    assert resampling.compare("It is red.", texts[:1], (["3"], ["4"]), "", meaning).kl is None


def test_a_run_that_is_killed_goes_on_where_it_was(copier, tmp_path, monkeypatch):
    monkeypatch.setattr(resampling, "SECONDS", 0.0)
    monkeypatch.setattr(resampling, "MINILM", ("none", str(tmp_path)))
    file, output = tmp_path / "a.txt", tmp_path / "a.json"
    file.write_text(
        "word007 <think> word001 word002 word003 . word004 word001 word002 . word001 word005 ."
    )
    words = ("--of", "output", "--model", copier, "--resample", 2, "--pattern", r"word\d+")
    asked = ("sources", file, *words, "-o", output, "-f", "none")
    assert run(*asked).status == 0
    whole = output.read_bytes()
    alone = run("sources", "word001 word002 word003 . word004 word001 word002 .", *words)
    assert "sentence 1 is not written again (–): a model needs a token before it" in alone.text
    assert b"the model's own last states" in whole
    output.unlink()
    draw, drawn = passes.SentencePasses.continuations, []

    def killed(self, *arguments):
        drawn.append(arguments)
        if len(drawn) == 3:
            raise KeyboardInterrupt
        return draw(self, *arguments)

    monkeypatch.setattr(passes.SentencePasses, "continuations", killed)
    monkeypatch.setattr(resampling.Rollouts, "leave", lambda _: None)  # as a kill leaves it
    assert run(*asked).status == 130
    other = run(*asked, "--resume", "--seed", 3)
    assert "was started with different options: --seed was '0' and is '3'" in other.err
    again = run(*asked, "--resume")
    assert "2 × 2 are there" in again.err
    assert len(drawn) == 3 + 2
    assert output.read_bytes() == whole
    assert not [one for one in tmp_path.iterdir() if "journal" in one.name]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none.txt", "--of", "output"), "there is no file 'none.txt'"),
        (("a b", "--of", "output", "--fit", 3), "--fit is for an answer"),
        (("a b", "--resample", 3), "--resample needs --of output"),
        (("a b", "c d", "--context", "x"), "sources answers one question"),
        (("a b.", "--of", "output", "--temperature", 0), "out of range: above 0"),
        (("Only one sentence.", "--of", "output"), "has 1 sentence: give two or more"),
        (("A b c. D e f.", "--of", "output", "--model", "pocket"), "continues no text"),
        (("A b c d e f g. H i j k l m.", "--of", "output", "--resume"), "of --resample N: add it"),
        (("A b. C d.", "--of", "output", "--resume", "--resample", 4), "give FILE, and -o FILE"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(words, message):
    done = run("sources", *words)
    assert done.status in (1, 2)
    assert message in done.err
