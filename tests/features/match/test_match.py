"""attnviz match: every similarity and score against slow loops over the checkpoint itself."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, BertModel

import attnviz as package
from attnviz.features.match.forms import form_of
from attnviz.features.match.report import match_table
from attnviz.renderers import Display
from tests.features.match.late_models import FACTS, colbert, pylate
from tests.hugging_face.tiny_models import bert, gpt2
from tests.invoke import attnviz

pytestmark = pytest.mark.models
QUERY, DOCUMENT = "the red car", "the professor is walking. the car is red, who published"
OTHERS = ["the student published the paper.", "who is supervising", DOCUMENT]


def unit(vector: list[float]) -> list[float]:
    size = math.sqrt(sum(x * x for x in vector))
    return [x / size for x in vector]


def slow_scores(queries: Any, documents: Any) -> tuple[np.ndarray, float, list[int]]:
    """Cosines, their largest of each row summed, and where these stand, one by one."""
    rows = [
        [sum(a * b for a, b in zip(unit(q), unit(d), strict=True)) for d in documents.tolist()]
        for q in queries.tolist()
    ]
    return np.array(rows), sum(map(max, rows)), [row.index(max(row)) for row in rows]


def as_colbert(folder: Path, text: str, query: bool) -> Any:
    """The vectors of a text as ColBERT's own code makes them: ". " before it, then the marker."""
    tokenizer, facts = AutoTokenizer.from_pretrained(folder), FACTS
    most = {"max_length": facts["query_maxlen" if query else "doc_maxlen"], "truncation": True}
    made = tokenizer(
        f". {text}", return_tensors="pt", padding="max_length" if query else False, **most
    )
    ids, mask = made["input_ids"], made["attention_mask"]
    ids[:, 1] = tokenizer.convert_tokens_to_ids(
        facts["query_token_id" if query else "doc_token_id"]
    )
    ids[ids == tokenizer.pad_token_id] = tokenizer.mask_token_id
    weights = load_file(folder / "model.safetensors")
    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.no_grad():
        states = model(ids, attention_mask=mask).last_hidden_state[0]
    vectors = states @ weights["linear.weight"].T
    if query:
        return vectors
    stop = tokenizer.convert_tokens_to_ids(".")
    return vectors[[n for n, number in enumerate(ids[0].tolist()) if number != stop]]


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colbert(tmp_path_factory.mktemp("colbert"))


def test_a_colbert_scores_as_its_own_code_does(late):
    expected, score, best = slow_scores(
        as_colbert(late, QUERY, query=True), as_colbert(late, DOCUMENT, query=False)
    )
    found = package.match(QUERY, DOCUMENT, model=str(late)).value
    np.testing.assert_allclose(found.similarities, expected, atol=1e-5)
    assert found.score == pytest.approx(score, abs=1e-5)
    assert list(found.best) == best
    names = [token.text for token in found.attention.main.query_tokens]
    assert names == ["[CLS]", "[Q]", "the", "red", "car", "[SEP]", *["[MASK]"] * 6]
    columns = [token.text for token in found.attention.main.key_tokens]
    assert columns[:3] == ["[CLS]", "[D]", "the"]
    assert "." not in columns
    notes = found.attention.provenance.notes
    assert "6 [MASK] fill the query up to 12 tokens, and count" in notes
    assert "of the document's 16 tokens 14 are read" in notes
    assert "the model does not compare 1 token of the document: ." in notes
    assert sum(value for _, value, _ in found.carriers) == pytest.approx(score, abs=1e-5)
    assert match_table(found, Display(colors="truecolor")).count(";48;2;") == len(names)


def test_pylate_projections_prefixes_and_skipped_words_are_read(tmp_path):
    folder = pylate(tmp_path / "pylate")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()

    def vectors(text: str, prefix: str, most: int, fill: bool) -> tuple[Any, list[int]]:
        made = tokenizer(text, truncation=True, max_length=most - 1)["input_ids"]
        ids = [made[0], tokenizer.convert_tokens_to_ids(prefix), *made[1:]]
        mask = [1] * len(ids) + [0] * (fill * (most - len(ids)))
        ids += [tokenizer.mask_token_id] * (len(mask) - len(ids))
        with torch.no_grad():
            states = model(
                torch.tensor([ids]), attention_mask=torch.tensor([mask])
            ).last_hidden_state[0]
        one, two = (load_file(folder / f"{n}_Dense" / "model.safetensors") for n in (1, 2))
        inner = torch.nn.functional.gelu(states @ one["linear.weight"].T + one["linear.bias"])
        outer = inner @ two["linear.weight"].T + two["linear.bias"]
        return outer + inner @ two["residual.weight"].T, ids

    queries, _ = vectors(QUERY, "un", 10, fill=True)
    documents, ids = vectors(DOCUMENT, "t", 14, fill=False)
    skipped = tokenizer.convert_tokens_to_ids([".", "the"])
    documents = documents[[n for n, number in enumerate(ids) if number not in skipped]]
    expected, score, _ = slow_scores(queries, documents)
    found = package.match(QUERY, DOCUMENT, model=str(folder)).value
    np.testing.assert_allclose(found.similarities, expected, atol=1e-5)
    assert found.score == pytest.approx(score, abs=1e-5)
    alone = pylate(tmp_path / "short", do_query_expansion=False, attend_to_expansion_tokens=True)
    rows = package.match(QUERY, DOCUMENT, model=str(alone)).value.attention.main.query_tokens
    assert [token.text for token in rows] == ["[CLS]", "un", "the", "red", "car", "[SEP]"]


def test_mask_tokens_attend_where_the_checkpoint_says_so(late, tmp_path):
    other = colbert(tmp_path / "attends", attend_to_mask_tokens=True)
    one, two = (package.match(QUERY, DOCUMENT, model=str(name)).value for name in (late, other))
    assert not np.allclose(one.similarities[2], two.similarities[2], atol=1e-3)


@pytest.mark.parametrize("build", [bert, gpt2])
def test_a_plain_model_compares_words_alone_and_says_so(build, tmp_path):
    folder = build(tmp_path / "plain")
    done = attnviz("match", QUERY, "the blue car", "--model", folder, "-f", "json")
    assert "was not trained for late interaction" in done.err
    (item,) = done.json()["maps"]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    sides = []
    for text in (QUERY, "the blue car"):
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            states = model.eval()(torch.tensor([ids])).last_hidden_state[0]
        special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
        sides.append(states[[n for n, one in enumerate(ids) if one not in special]])
    expected, score, _ = slow_scores(*sides)
    np.testing.assert_allclose(item["weights"][0][0], expected, atol=1e-5)
    assert done.json()["provenance"]["settings"]["score"] == pytest.approx(score, abs=1e-5)


def test_documents_are_ranked_by_score(late, tmp_path):
    file = tmp_path / "documents.txt"
    file.write_text("".join(f"{line}\n" for line in OTHERS))
    done = attnviz("match", QUERY, "--input", file, "--model", late, "-f", "json")
    scores = {text: package.match(QUERY, text, model=str(late)).value.score for text in OTHERS}
    ranked = sorted(OTHERS, key=lambda text: -scores[text])
    found = done.json()["documents"]
    assert [one["text"] for one in found] == ranked
    assert [one["rank"] for one in found] == [1, 2, 3]
    assert [one["score"] for one in found] == [pytest.approx(scores[text]) for text in ranked]
    table = attnviz("match", QUERY, "--input", file, "--model", late, "-q").lines
    assert [line.split()[0] for line in table[-3:]] == ["1", "2", "3"]
    one = attnviz("match", QUERY, "--input", file, "--record", 2, "--model", late, "-f", "json")
    assert one.json()["source"] == DOCUMENT
    several = package.match(QUERY, OTHERS, model=str(late)).value
    assert [one.attention.source for one in several] == ranked
    away = attnviz("match", QUERY, "--input", file, "--record", 9, "--model", late)
    assert away.mistake == "--record 9 is no id and no number of the 3 documents"
    arrays = attnviz("match", QUERY, "--input", file, "--model", late, "-o", tmp_path / "a.npz")
    assert "a ranking of several documents is no array" in arrays.mistake


def test_a_map_of_similarities_is_saved_and_shown_again(late, tmp_path):
    file = tmp_path / "map.npz"
    done = attnviz("match", QUERY, DOCUMENT, "--model", late, "-o", file)
    assert "similarity, not attention" in " ".join(done.text.split())
    again = attnviz("render", file, "-f", "json").json()["maps"][0]
    found = package.match(QUERY, DOCUMENT, model=str(late)).value
    np.testing.assert_allclose(again["weights"][0][0], found.similarities, atol=1e-6)
    assert (again["stream"], again["values"]) == ("similarity", "signed")
    page = package.match(QUERY, DOCUMENT, model=str(late)).page()
    assert "Rows are the query's tokens" in page


def test_the_picture_frames_the_largest_of_each_row(late):
    found = package.match(QUERY, DOCUMENT, model=str(late))
    axes = found.picture("heatmap").axes[0]
    frames = [patch for patch in axes.patches if patch.get_gid() == "maximum"]
    assert [(round(p.get_x() + 0.5), round(p.get_y() + 0.5)) for p in frames] == [
        (column, row) for row, column in enumerate(found.value.best)
    ]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("query", "document")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"query_token_id": "[nowhere]"}, "the marker '[nowhere]' of a query is no token"),
        ({"doc_maxlen": "long"}, "the model's folder gives a side 'long' tokens"),
    ],
)
def test_a_broken_form_is_one_line(facts, reason, tmp_path):
    folder = colbert(tmp_path / "broken", **facts)
    assert reason in attnviz("match", QUERY, DOCUMENT, "--model", folder).mistake


def test_what_is_no_late_interaction_is_refused(tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "config.json").write_text('{"model_type": "colpali"}')
    asked = ("match", QUERY, DOCUMENT, "--model", tmp_path / "pages")
    assert "compares a query with pictures of pages" in attnviz(*asked).mistake
    assert "--model ID_OR_FOLDER" in attnviz("match", QUERY, DOCUMENT).mistake
    folder = pylate(tmp_path / "odd")
    place = folder / "1_Dense" / "config.json"
    facts = json.loads(place.read_text())
    place.write_text(json.dumps(facts | {"activation_function": "os.system"}))
    assert "followed by 'os.system'" in attnviz("match", "a", "b", "--model", folder).mistake
    modules = [{"type": "models.Transformer"}, {"type": "models.Pooling"}, {"type": "models.Dense"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text("{}")
    assert not form_of(folder, {}).trained  # a projection of sentences is none of tokens
