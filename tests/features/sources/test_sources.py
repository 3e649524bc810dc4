"""Which part of a context an answer was made from: recomputed, budgets, fits, forms, statuses."""

import json

import numpy as np
import pytest

import attnviz
from attnviz.core.effects import Intervention, TokenAt
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.features.pocket_lm.language_model import load_pocket_lm
from attnviz.features.sources.subsets import effects_of_parts, fit_heads, leave_out_parts
from attnviz.models.open import open_source
from tests.hugging_face import tiny_models
from tests.invoke import attnviz as run

CONTEXT = (
    "Tom likes dogs.\n\nMary likes cats.\n\nThe train leaves at seven.\n\nJohn has a red car.\n"
)


@pytest.fixture
def notes(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text(CONTEXT)
    return file


def test_leaving_out_is_hiding_the_part_from_all_others(notes):
    found = attnviz.sources("Tom likes", notes, answer="dogs.", model="pocket-lm").value
    assert found.sentences == ("dogs.",)
    model = load_pocket_lm()
    text = " ".join(CONTEXT.split()) + " Tom likes dogs."
    experiment = model.experiment(Query(text), "all")
    words = [token.text for token in experiment.attention.main.key_tokens]
    ends = [n for n, word in enumerate(words) if word == "."]
    starts = [1, *(end + 1 for end in ends)]

    def score(hidden):
        tokens = tuple(TokenAt("text", n) for n in hidden)
        (rows,) = experiment.run([Intervention(tokens=tokens)])
        return sum(
            row[one.number]
            for row, one in zip(rows, experiment.outputs, strict=True)
            if one.position in (len(words) - 2, len(words) - 1)
        )

    for part, (start, end) in zip(found.parts, zip(starts, ends, strict=False), strict=False):
        assert part.tokens == end - start + 1
        assert part.effect == pytest.approx(score([]) - score(range(start, end + 1)), abs=1e-4)
    removed = attnviz.sources(
        "Tom likes", notes, answer="dogs.", without="remove", model="pocket-lm"
    ).value
    assert removed.parts[0].effect != pytest.approx(found.parts[0].effect, abs=1e-3)
    assert removed.how == "its text is deleted"


def test_each_sentence_of_a_translation_has_its_source(notes):
    found = attnviz.sources("Mary likes cats.", notes, group="sentences", model="pocket").value
    assert found.written
    largest = [int(np.argmax([part.of_sentences[n] for part in found.parts])) for n in range(4)]
    assert largest == [0, 1, 2, 3]


@pytest.mark.parametrize(("budget", "known"), [(16, 16), (8, 2), (4, 0)])
def test_a_budget_divides_the_half_that_matters(budget, known):
    """Sixteen parts, of which one carries the answer."""
    runs = []

    def leave_out(groups):
        runs.extend(groups)
        return np.array([[-8.0 * (11 in group) - 0.1 * len(group)] for group in groups])

    found = effects_of_parts(leave_out_parts(16, leave_out, np.zeros(1), budget), 16)
    assert len(runs) <= budget
    assert sum(np.isfinite(effect) for effect, *_ in found) == known
    if known:
        assert found[11][0] == pytest.approx(8.1)
    groups = {group for *_, group in found}
    assert sorted(part for group in groups for part in group) == list(range(16))


def test_a_fit_finds_planted_weights_of_heads():
    drawn = np.random.default_rng(3)
    shares = drawn.dirichlet(np.ones(12), size=6).T  # parts, heads
    planted = np.array([0, 5.0, 0, 0, 2.0, 0])

    def leave_out(groups):
        return np.array([[-sum(float(shares[part] @ planted) for part in own)] for own in groups])

    found = fit_heads(shares, leave_out, 0.0, 60)
    np.testing.assert_allclose(found, shares @ planted, atol=0.05)


def test_every_form_names_the_source(notes, tmp_path):
    asked = ("sources", "Tom likes", "--context", notes, "--model", "pocket-lm")
    table = run(*asked, "--fit", 12)
    assert table.status == 0
    assert "the model writes: dogs.¹ Mary likes cats." in table.text
    assert "rank correlation of cheap estimates with these effects: attention" in table.text
    assert "the model now runs 16 times" in table.err
    document = run(*asked, "-f", "json").json()
    assert document["sources"][0][0] == 1
    rows = run(*asked, "-f", "tsv").rows
    assert rows[0][:5] == ["number", "file", "tokens", "effect", "sentence_1"]
    assert float(rows[1][3]) == document["parts"][0]["effect"]
    page = tmp_path / "a.html"
    assert run(*asked, "--html", page, "-f", "none").status == 0
    assert '<sup><a href="#part-1">1</a></sup>' in page.read_text("utf-8")


@pytest.mark.models
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2", "t5", "bart", "marian"])
def test_checkpoints_of_both_kinds_are_asked(kind, tmp_path):
    """A decoder reads context and answer in one text, an encoder–decoder in two."""
    folder, notes = getattr(tiny_models, kind)(tmp_path / kind), tmp_path / "a.txt"
    notes.write_text("the red car\n\nthe cat\n")
    found = attnviz.sources(
        "the", notes, answer="car is", model=str(folder), group="sentences"
    ).value
    side = "source" if kind in ("t5", "bart", "marian") else "text"
    assert len(found.parts) == 2
    text = "the red car the cat the"
    query = Query(text, "car is", "cross") if side == "source" else Query(f"{text} car is")
    experiment = open_source(Origin(model=str(folder)), query.kind, with_head="exact").experiment(
        query, "all"
    )
    outputs = [
        n
        for n, one in enumerate(experiment.outputs)
        if side == "source"
        or experiment.attention.main.query_tokens[one.position].start >= len(text)
    ]
    outputs = [
        n
        for n in outputs
        if not experiment.attention.main.query_tokens[experiment.outputs[n].position].special
    ]

    def score(tokens):
        (rows,) = experiment.run([Intervention(tokens=tuple(tokens))])
        return sum(rows[n][experiment.outputs[n].number] for n in outputs)

    ends = len("the red car"), len("the red car the cat")
    spans = (0, ends[0]), (ends[0] + 1, ends[1])
    keys = experiment.attention.main.key_tokens
    for part, (first, last) in zip(found.parts, spans, strict=True):
        hidden = [
            TokenAt(side, n)
            for n, key in enumerate(keys)
            if not key.special and key.start < last and key.end > first
        ]
        assert part.effect == pytest.approx(score([]) - score(hidden), abs=1e-4)


TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}: {{ message['content'] }}</s>"
    "{% endfor %}{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.models
def test_messages_of_a_chat_are_left_out_each(tmp_path):
    """Against the rendered conversation with the tokens of a message hidden by hand."""
    folder, notes = tiny_models.llama(tmp_path / "llama"), tmp_path / "chat.jsonl"
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    turns = [("user", "the red car"), ("assistant", "user"), ("user", "the cat")]
    lines = [json.dumps({"role": role, "content": text}) for role, text in turns]
    notes.write_text("\n".join(lines))
    asked = {"answer": " car is", "model": str(folder), "chat": True}
    found = attnviz.sources("the", notes, group="messages", **asked).value
    marked = "".join(f"<s>{role}: {text}</s>" for role, text in turns)
    marked += "<s>user: the</s><s>assistant:"
    query = Query(f"{marked} car is", rendered=True)
    origin = Origin(model=str(folder), chat=True)
    experiment = open_source(origin, "self", with_head="exact").experiment(query, "all")
    assert experiment.attention.text == query.text
    keys = experiment.attention.main.key_tokens
    outputs = [
        n for n, one in enumerate(experiment.outputs) if keys[one.position].start >= len(marked)
    ]

    def score(tokens):
        (rows,) = experiment.run([Intervention(tokens=tuple(tokens))])
        return sum(rows[n][experiment.outputs[n].number] for n in outputs)

    assert [part.file for part in found.parts] == [f"chat.jsonl, {role}" for role, _ in turns]
    one_line = tmp_path / "messages.jsonl"
    one_line.write_text(f'{{"messages": [{", ".join(lines)}]}}')
    same = attnviz.sources("the", one_line, group="messages", **asked).value
    assert [part.effect for part in same.parts] == [part.effect for part in found.parts]
    end = 0
    for part, (role, text) in zip(found.parts, turns, strict=True):
        first = marked.index(f"<s>{role}: {text}</s>", end) + len(f"<s>{role}: ")
        end = first + len(text)
        hidden = [
            TokenAt("text", n)
            for n, key in enumerate(keys)
            if not key.special and key.start < end and key.end > first
        ]
        assert part.tokens == len(hidden)
        assert part.effect == pytest.approx(score([]) - score(hidden), abs=1e-4)
    removed = attnviz.sources("the", notes, group="messages", without="remove", **asked).value
    assert removed.parts[0].effect != pytest.approx(found.parts[0].effect, abs=1e-4)
    plain = tmp_path / "a.txt"
    plain.write_text("the red car\n\nthe cat\n")
    found = attnviz.sources("the", plain, **asked).value
    assert [part.tokens for part in found.parts] == [removed.parts[n].tokens for n in (0, 2)]
    broken = tmp_path / "broken.jsonl"
    broken.write_text(lines[0] + '\n{"role": "user"}\n')
    asked = ("--group", "messages", "--model", folder)
    assert "add --chat" in run("sources", "the", "--context", notes, *asked).mistake
    done = run("sources", "the", "--context", broken, *asked, "--chat")
    assert f"line 2 of '{broken}' is no message such as" in done.mistake


def test_answers_without_a_source_or_a_writer(notes, tmp_path):
    asked = ("sources", "Tom likes", "--context", notes, "--model", "pocket-lm", "--answer", "tea")
    assert run(*asked, "--fail-unsupported", 0).status == 0
    done = run(*asked, "--fail-unsupported", 50)
    assert done.status == 3
    assert "1 of 1 sentences have no source with 50 nats: 'tea'" in done.err
    (tmp_path / "a.txt").write_text("the cat", "utf-8")
    model = tiny_models.bert(tmp_path / "bert")
    done = run("sources", "the", "--context", tmp_path / "a.txt", "--model", model)
    assert (done.status, done.out) == (2, b"")
    assert "a model writes, and an encoder writes none" in done.mistake


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a",), "sources needs a context"),
        (("a", "--context", "none.txt"), "none.txt"),
        (
            ("a", "--context", "README.md", "--chat", "--model", "pocket-lm"),
            "--chat needs a model that writes",
        ),
        (("a", "--context", "sample_inputs/shapes.png"), "is not valid UTF-8"),
    ],
)
def test_mistakes_get_one_line(arguments, says):
    assert says in run("sources", *arguments).mistake
