"""What decided an answer: planted causes, sets recomputed, forms, pages and mistakes."""

import json
import re

import numpy as np
import pytest

import attnviz
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.effects import HeadAt, Intervention, LinkAt, PredictedToken
from attnviz.core.query import Query
from attnviz.features.explain.report import ENOUGH
from attnviz.features.explain.search import REFERENCE, explain_answer
from attnviz.features.explain.smallest import Trials, smallest_set
from attnviz.features.explain.table import answer_table
from attnviz.features.pocket_lm.language_model import load_pocket_lm
from attnviz.models.pocket.text import SPECIALS
from attnviz.renderers import Display
from tests.invoke import attnviz as run

TEXT = "Tom likes dogs. Mary likes cats. Tom likes"
LM = ("--model", "pocket-lm")


class Planted:
    """A model whose answer one head copies from one token; other heads and tokens hardly matter.

    With several `copiers` each adds the same share of the answer.
    """

    def __init__(self, seed, heads=12, tokens=9, copiers=1):
        drawn = np.random.default_rng(seed)
        self.copiers = [int(n) for n in drawn.permutation(heads)[:copiers]]
        self.place = int(drawn.integers(tokens - 1))
        self.little = drawn.normal(scale=0.02, size=(heads, tokens))
        weights = drawn.dirichlet(np.ones(tokens), size=(2, heads // 2, tokens))
        for number in self.copiers:
            weights[number // (heads // 2), number % (heads // 2), -1] = np.eye(tokens)[self.place]
        names = tuple(Token(f"w{n}") for n in range(tokens))
        layers, own = ("0", "1"), tuple(map(str, range(heads // 2)))
        item = AttentionMap("self", names, names, weights.astype(np.float32), layers, own)
        self.attention = Attention((item,), Provenance("made", "planted"))
        self.outputs = (PredictedToken(tokens - 1, 1, "answer"),)
        self.heads = [HeadAt("self", layer, int(head)) for layer in layers for head in own]

    def run(self, changes, instead=None):
        for change in changes:
            hidden = {at.position for at in change.tokens}
            cut = {(at.layer, at.head, at.query, at.key) for at in change.links}
            rows = {(at.layer, at.head, at.query) for at in change.rows}
            score = 0.0
            for number, at in enumerate(self.heads):
                if at in change.heads:
                    continue
                seen = [n for n in range(self.little.shape[1]) if n not in hidden]
                score += self.little[number, seen].sum()
                link = (at.layer, at.head, self.outputs[0].row, self.place)
                if link[:3] in rows:
                    continue
                if number in self.copiers and self.place in seen and link not in cut:
                    score += 8 / len(self.copiers)
            scores = np.array([[5.0, score, 0.0]])
            yield scores - np.log(np.exp(scores).sum())

    def head_outputs(self):
        shape = (len(self.heads) // 2, self.little.shape[1], 2)
        return {("self", layer): np.zeros(shape) for layer in ("0", "1")}

    def spell(self, number):
        return ("other", "answer", "third")[number]


@pytest.mark.parametrize("seed", range(20))
def test_a_planted_cause_is_named_and_nothing_else(seed):
    model = Planted(seed)
    found = explain_answer(model, [model.head_outputs()], None)
    (copier,) = model.copiers
    assert [claim.at for claim in found.heads] == [model.heads[copier]]
    assert [one.place["position"] for one in found.tokens] == [model.place]
    assert found.heads[0].link == (8, model.place)
    at, (link,) = found.heads[0].at, found.links.links
    assert link == LinkAt("self", 8, model.place, at.layer, at.head)
    assert found.links.kept >= ENOUGH
    assert found.links.removed < 0.1
    assert found.is_small
    assert found.kept >= ENOUGH
    assert found.removed < 0.1


def test_an_answer_of_all_heads_has_no_small_set():
    model = Planted(0, copiers=12)
    found = explain_answer(model, [model.head_outputs()], None)
    assert not found.is_small
    assert len(found.heads) > 6
    assert "No small set    of heads and tokens gives this answer" in answer_table(found, Display())


def test_searches_run_each_change_once_and_prune():
    model = Planted(0)
    trials = Trials(model, None, None)
    off, cut = (Intervention(heads=(at,)) for at in model.heads[:2])
    (first, second, again) = trials.score([off, cut, off])
    assert first == again != second
    assert trials.runs == 2
    assert trials.score([cut, off]).tolist() == [second, first]
    assert trials.runs == 2
    trials.run([off], model.head_outputs())
    assert trials.runs == 3
    # Sixty items, of which three are needed, one of them with a small effect of its own.
    needed, asked = {7, 31, 44}, []

    def score(sets):
        asked.extend(sets)
        return np.array([float(len(needed & {*one})) for one in sets])

    costs = np.where([n in (7, 31) for n in range(60)], 1.0, 0.0)
    costs[[44, 50, 51]] = 0.1, 0.2, 0.3
    assert {*smallest_set(range(60), costs, score, 3.0)} == needed
    assert len(asked) < 30


@pytest.mark.slow
@pytest.mark.core
def test_the_circuit_inside_is_found_as_by_ablate():
    found = attnviz.explain(TEXT, model="pocket-lm").value
    assert {(one.at.layer, one.at.head) for one in found.heads} == {("1", 1), ("2", 3), ("1", 4)}
    assert [(one.label, one.place["position"]) for one in found.tokens] == [
        ("dogs", 3),
        ("likes[2]", 2),
    ]
    carrier = next(one for one in found.heads if (one.at.layer, one.at.head) == ("2", 3))
    assert (carrier.link, carrier.why.key[0].writer) == ((10, 3), "1.1")
    assert found.idle.at == HeadAt("causal", "2", 4)

    def loss(heads, tokens):
        """What log p falls by, by the command that switches parts off."""
        report = attnviz.ablate(
            *(TEXT,),
            heads=[f"{at.layer}.{at.head}" for at in heads],
            tokens=[f"{name}[{n}]" for n, name in tokens],
            model="pocket-lm",
            by="mean",
            reference=list(REFERENCE),
            explain="next:dogs",
        ).value
        return report.together.effect

    words = attnviz.attend(TEXT, model="pocket-lm").main.key_tokens
    places = list(enumerate(token.text for token in words))
    every = [HeadAt("causal", str(layer), head) for layer in range(3) for head in range(5)]
    heads, tokens = {one.at for one in found.heads}, {one.place["position"] for one in found.tokens}
    span = loss(every, [])
    alone = loss([at for at in every if at not in heads], [p for p in places if p[0] not in tokens])
    without = loss(heads, [p for p in places if p[0] in tokens])
    assert found.span == pytest.approx(span, abs=1e-4)
    assert found.kept == pytest.approx(1 - alone / span, abs=1e-4)
    assert found.removed == pytest.approx(1 - without / span, abs=1e-4)
    assert found.tokens[0].effect == pytest.approx(loss([], [places[3]]), abs=1e-4)


@pytest.mark.slow
def test_links_alone_are_what_a_slow_pass_gives():
    """Rows without a link put out the mean; the links that are left share the whole weight."""
    found = attnviz.explain(TEXT, model="pocket-lm").value
    assert found.links.ends == (("likes[10]", "dogs"),)
    model = load_pocket_lm()
    experiment = model.experiment(Query(TEXT))
    banks = [model.experiment(Query(text)).head_outputs() for text in REFERENCE]
    means = {
        layer: np.concatenate([bank["causal", layer] for bank in banks], axis=1).mean(axis=1)
        for layer in "012"
    }
    links = {(link.layer, link.head, link.query): link.key for link in found.links.links}

    def watch(one):
        layer = one.path.split(".")[2]
        size = one.output.shape[-1] // 5
        output = one.output + 0
        for head in range(5):
            for row in range(output.shape[-2]):
                key = links.get((layer, head, row))
                own = means[layer][head] if key is None else one.value[0, head, key]
                output[..., row, head * size : (head + 1) * size] = own
        return output

    inputs = tuple(x[None] for x in experiment.inputs)
    states, _ = model.forward(model.weights, inputs, watch, 0)
    logits = model.scores(model.weights, states[:, [experiment.outputs[0].row]])[0, 0]
    log_p = float(logits[experiment.outputs[0].number] - np.log(np.exp(logits).sum()))
    full = np.log(found.chance)
    assert found.links.kept == pytest.approx(1 - (full - log_p) / found.span, abs=1e-3)
    cut = found.links.links[0]
    (rows,) = experiment.run([Intervention(links=(cut,))])
    lost = full - float(rows[0][experiment.outputs[0].number])
    assert found.links.removed == pytest.approx(1 - lost / found.span, abs=1e-3)


@pytest.mark.slow
def test_words_said_twice_and_slopes_of_the_next_word():
    words = ["dog", "tree", "bread", "river", "king", "door", "milk", "garden", "house", "night"]
    drawn = np.random.default_rng(1)
    for _ in range(2):
        some = [words[n] for n in drawn.permutation(len(words))[:8]]
        found = attnviz.explain(" ".join([*some, *some[:4]]), model="pocket-lm").value
        assert found.kept >= ENOUGH or not found.is_small
    model = load_pocket_lm()
    word, end = (model.experiment(Query("I love cats."), one) for one in (None, "next:<eos>"))
    (before,), (after,) = word.run(
        [Intervention(), Intervention(links=(LinkAt("causal", 4, 1, "1", 3),))]
    )
    slope, weight = word.gradients()[0][1, 3, 4, 1], word.attention.main.weights[1, 3, 4, 1]
    number = word.outputs[0].number
    assert np.sign(slope * weight) == np.sign(before[number] - after[number])
    assert not np.allclose(word.gradients()[0], end.gradients()[0])


def test_one_screen_says_what_was_measured():
    done = run("explain", TEXT, *LM)
    shown = " ".join(done.text.split())
    for words in (
        'The model says "dogs" (.97); next best "cats" (.02)',
        "It needs dogs (3) 10.2 · likes (2) 3.7 nats",
        "looks from likes[10] to dogs (weight .96, effect 4.2), because its score is +13.20 above",
        "it argues for dogs (+6.87)",
        "3 heads of 15 and 2 tokens of 11 keep .99",
        "head 2.4 looks from likes[10] to <eos> with weight .93 and does nothing",
    ):
        assert words in shown
    assert len(re.findall(r"^\S.{14}", done.text, re.MULTILINE)) <= 11  # caption, claims, footer


@pytest.mark.slow
def test_another_answer_and_a_word_of_a_target():
    found = attnviz.explain(TEXT, model="pocket-lm", against="cats").value
    model = attnviz.ablate(TEXT, tokens=["dogs"], model="pocket-lm", explain="next:dogs").value
    other = attnviz.ablate(TEXT, tokens=["dogs"], model="pocket-lm", explain="next:cats").value
    expected = model.together.effect - other.together.effect
    assert found.against == "cats"
    effects = {one.label: one.effect for one in found.tokens}
    assert effects["dogs"] == pytest.approx(expected, abs=1e-4)
    pair = ("red", "rouge")
    note = "'rouge' is the word of the target: --target 'next:rouge' explains it as the token after"
    for words in (
        ("explain",),
        ("why", "--head", "cross.2.0", "--link", "rouge>red"),
        ("ablate", "--head", "2.0"),
    ):
        done = run(*words, *pair, "--target", "rouge", "-f", "json")
        assert (done.status, done.err.count(note)) == (0, 1), words
    plain = run(*words, *pair, "--target", "rouge[1]", "-f", "json")
    assert (done.json()["effects"], plain.err.count(note)) == (plain.json()["effects"], 0)


def test_after_a_sentence_the_next_word_is_explained():
    text = "I love cats."
    model = load_pocket_lm()
    experiment = model.experiment(Query(text), "next:<eos>")
    (rows,) = experiment.run([Intervention()])
    powers = np.exp(rows[0].astype(np.float64))
    assert powers[experiment.outputs[0].number] > 0.9  # the model ends the text here
    words = powers[len(SPECIALS) :]
    done = run("explain", text)
    document = attnviz.explain(text).to_json()
    assert f'The model says  "I" ({words.max() / words.sum():.2f})'.replace("0.", ".") in done.text
    assert document["answer"] == "I" == experiment.spell(len(SPECIALS) + int(words.argmax()))
    assert document["chance"] == pytest.approx(words.max() / words.sum(), rel=1e-4)
    note = "the model says '<eos>' here (p 0.98), which is no word: the likeliest word is explained"
    assert note in done.err
    assert any(note in one for one in document["notes"])
    # Without every head, p is that among the words too.
    off = Intervention(heads=tuple(HeadAt("causal", str(n), m) for n in range(3) for m in range(5)))
    after = model.experiment(Query(text))
    ((plain,), (changed,)) = after.run([Intervention(), off])
    assert np.exp(plain).sum() == pytest.approx(1) == np.exp(changed).sum()
    assert np.exp(plain[: len(SPECIALS)]).sum() == 0 == np.exp(changed[: len(SPECIALS)]).sum()


@pytest.mark.slow
def test_every_form_holds_the_same_numbers_and_many_texts(tmp_path):
    document = run("explain", TEXT, *LM, "-f", "json").json()
    rows = run("explain", TEXT, *LM, "-f", "tsv").rows
    assert rows[0] == ["part", "stream", "layer", "head", "name", "other", "value"]
    values = {tuple(row[:4]): float(row[6]) for row in rows[1:] if row[6]}
    assert values["head", "causal", "2", "3"] == next(
        one["effect"] for one in document["heads"] if one["at"]["layer"] == 2
    )
    assert values["kept", "", "", ""] == document["kept"]
    page = tmp_path / "a.html"
    assert run("explain", TEXT, *LM, "--html", page, "-f", "none").status == 0
    data = re.search(r'id="document">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    shown = json.loads(data[1])
    known = [one["link"] for one in shown["why"]]
    links = [one["link"] for one in shown["claims"] if one["link"]]
    assert len(links) == 3
    assert all(link in known for link in links)
    file = tmp_path / "texts.txt"
    file.write_text(f"{TEXT}\nMary likes cats. Tom likes dogs. Mary likes\n")
    asked = ("explain", "--input", file, *LM, "--html", tmp_path / "b.html", "-f", "json")
    assert len(run(*asked).json()["answers"]) == 2  # together, and a page of each
    assert sorted(one.name for one in tmp_path.glob("b*")) == ["b-0.html", "b-1.html"]
    report = attnviz.explain(input=str(file), model="pocket-lm").value
    assert [at.head for at, texts, _ in report.heads if texts == 2][:2] in ([1, 3], [3, 1])
    lines = run("explain", "--input", file, *LM, "-f", "jsonl").text.splitlines()
    assert [json.loads(line)["answer"] for line in lines] == ["dogs", "cats"]
    table = run("explain", "--input", file, *LM).text
    assert "a small set of heads and tokens gives 2 of them" in table


def test_patching_names_what_carries_the_difference():
    """Against a forward pass whose head is replaced by hand."""
    other = TEXT.replace("dogs", "birds")
    found = attnviz.explain(TEXT, contrast=other, model="pocket-lm").value
    assert found.answers == ("dogs", "birds")
    assert (found.heads[0].layer, found.heads[0].head) == ("2", 3)
    assert (found.rows[0].token, found.rows[0].head) == ("likes[10]", 3)
    assert found.rows[0].share > 0.9
    model = load_pocket_lm()
    runs = [model.experiment(Query(text)) for text in (TEXT, other)]
    numbers = [run.outputs[0].number for run in runs]

    def score(text, replaced):
        """The difference of logits, some heads of a layer put out what `replaced` says."""
        seen = {}

        def watch(one):
            layer = one.path.split(".")[2]
            seen[layer] = output = one.output + 0
            seen[layer, "links"] = one.weights[0, :, :, :, None] * one.value[0, :, None]
            size = output.shape[-1] // 5
            for where, head, rows, values in replaced:
                if where == layer:
                    output[..., rows, head * size : (head + 1) * size] = values[
                        ..., rows, head * size : (head + 1) * size
                    ]
            return output

        experiment = model.experiment(Query(text))
        states, _ = model.forward(
            model.weights, tuple(x[None] for x in experiment.inputs), watch, 0
        )
        logits = model.scores(model.weights, states[:, [experiment.outputs[0].row]])[0, 0]
        return float(logits[numbers[0]] - logits[numbers[1]]), seen

    clean, outputs = score(TEXT, [])
    corrupt, _ = score(other, [])
    assert found.scores == pytest.approx((clean, corrupt), abs=1e-3)
    for one in (found.heads[0], found.heads[5]):
        patch = [(one.layer, one.head, slice(None), outputs[one.layer])]
        share = (score(other, patch)[0] - corrupt) / (clean - corrupt)
        assert one.share == pytest.approx(share, abs=1e-4)
    cell = next(one for one in found.layers if (one.layer, one.token) == ("1", "dogs"))
    patch = [("1", head, slice(3, 4), outputs["1"]) for head in range(5)]
    share = (score(other, patch)[0] - corrupt) / (clean - corrupt)
    assert cell.share == pytest.approx(share, abs=1e-4)
    ours = score(other, [])[1]
    for one in (found.heads[0], found.heads[5], found.links[0], found.links[3]):
        rows = slice(None) if one.position is None else slice(one.position, one.position + 1)
        moved = outputs[one.layer] - ours[one.layer]
        if one.key is not None:
            place = one.head, one.position, one.key
            link = outputs[one.layer, "links"][place] - ours[one.layer, "links"][place]
            moved = np.broadcast_to(np.tile(link, 5), moved.shape)
        shares = [
            (score(other, [(one.layer, one.head, rows, ours[one.layer] + step * moved)])[0] - low)
            / (clean - corrupt)
            for step, low in ((1, corrupt), (0.01, corrupt))
        ]
        assert one.share == pytest.approx(shares[0], abs=1e-4)
        assert one.estimate == pytest.approx(shares[1] / 0.01, rel=0.02, abs=1e-3)
    assert found.agreement > 0.95


@pytest.mark.slow
def test_every_form_of_a_contrast_has_the_estimates(tmp_path):
    drawn, page = tmp_path / "a.svg", tmp_path / "a.html"
    asked = ("explain", TEXT, "--contrast", TEXT.replace("dogs", "birds"), *LM)
    text = " ".join(run(*asked, "--picture", drawn, "--html", page).text.split())
    assert "2.3 at likes[10] .99 (.95)" in text
    assert "2.3 from likes[10] to dogs 1.0 (.98)" in text
    assert "heads that restore most: 2.3 .99" in drawn.read_text("utf-8")
    assert "<td>.99</td><td>.95</td>" in page.read_text("utf-8")
    file = tmp_path / "texts.txt"
    file.write_text(f"{TEXT}\n{TEXT}\n")
    places = ("--picture", tmp_path / "b.svg", "--html", tmp_path / "b.html", "-f", "json")
    assert len(run("explain", "--input", file, *asked[2:], *places).json()) == 2
    several = ["b-0.html", "b-0.svg", "b-1.html", "b-1.svg"]
    assert sorted(one.name for one in tmp_path.glob("b*")) == several
    rows = run(*asked, "-f", "tsv").rows
    assert ["1", "4", "3"] in [row[1:4] for row in rows]


@pytest.mark.slow
@pytest.mark.usefixtures("few_references")
def test_pairs_and_pictures_have_answers_too():
    pair = run("explain", "The red car.", "La voiture rouge.", "--target", "rouge[3]").text
    assert "red (source 1)" in pair
    picture = run("explain", "sample_inputs/shapes.png").text
    assert 'The model says  "star"' in picture
    assert "their mean over the positions of this input" in " ".join(picture.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a b", *LM, "--against", "qqqq"), "--against 'qqqq' is none of the 8,000 choices"),
        (("a b", "--mechanism", "rotary"), "unknown option '--mechanism'"),
        (("--input", "nothing.txt"), "nothing.txt"),
        (("a b", *LM, "--contrast", "a b c d e f"), "needs texts of as many tokens"),
        (("a b", *LM, "--contrast", "a b"), "both texts have the answer"),
        (("a b", *LM, "--contrast", "a c", "--against", "b"), "contradict each other"),
        (("a b", *LM, "--picture", "a.png"), "add --contrast TEXT"),
    ],
)
def test_mistakes_get_one_line(arguments, says):
    assert says in run("explain", *arguments).mistake
