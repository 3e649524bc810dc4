"""Tables of the documents that are made from code: names with what they mean, and columns.

`python docs/tables.py` writes them into the folder `tables`; a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT)]

Rows = list[tuple[str, ...]]


def names() -> Iterator[str]:
    """Every name that an option takes, by what it is."""
    from attnviz.core import registry
    from attnviz.features.compare.report import RULES

    tables = {
        "Measures of heads": registry.MEASURES,
        "Lenses (`--lens`)": registry.LENSES,
        "Formats (`-f`)": registry.FORMATS,
        "Rules of a cache (`--keep`)": registry.POLICIES,
    }
    yield "# Names\n\nWhat each name means. `python docs/tables.py` writes this page."
    for title, rows in tables.items():
        told = [(f"`{name}`", row.summary) for name, row in rows.items()]
        yield f"## {title}\n\n{table(('name', 'what it is'), told)}"
    yield f"## Verdicts on a head of a training run\n\n{table(('name', 'rule'), [*RULES.items()])}"


KINDS = {"text": "text", "place": "number", "whole": "whole number", "number": "number"}
HEAD = ("schema", "kind")
TYPES = {"string": "", "integer": "whole", "number": "number", "boolean": "bool"}


MEANINGS = {
    "id": "the text's own id, else its number in the input",
    "stream": "which attention: self, causal, encoder, decoder, cross, …",
    "layer": "a layer",
    "head": "a head of that layer",
    "query_position": "the place of the token that attends",
    "query_token": "that token",
    "key_position": "the place of the token that is attended to",
    "key_token": "that token",
    "weight": "the share of attention, or of a lens its value",
    "role": "a clear role, such as previous-token",
    "role_share": "the share of attention that has it",
    "MEASURE": "a measure, or an estimate, under its own name",
    "MEASURE_uniform": "what uniform attention would have",
    "MEASURE_low": "the lower end of its 95 % interval",
    "MEASURE_high": "the upper end",
    "rests_on": "the role of the key that a head looks at where it has nothing to do",
    "rests_share": "the share of attention that rests there",
    "writes": "the tokens that a head argues for",
    "other_layer": "the layer of the other head",
    "other_head": "the other head",
    "divergence": "of two heads, in nats",
    "relation": "a relation of the treebank",
    "cases": "how often it occurs",
    "offset": "key − query in tokens; `<-16` and `>16` for all beyond",
    "offset_share": "the share of cases at the most frequent offset",
    "toward": "head or dependent: where links point",
    "share": "a share of cases, or of attention",
    "measure": "the name of a measure",
    "mean": "a mean over texts, or over occurrences",
    "sd": "the standard deviation between texts",
    "low": "the lower end of a 95 % interval",
    "high": "the upper end",
    "uniform": "what uniform attention would have",
    "texts": "how many texts have a value",
    "class": "the class of the key",
    "query": "the word that attends",
    "key": "the word that is attended to",
    "count": "how often they occur",
    "rank": "the place in an order, from 1",
    "text": "a text, or a part of one",
    "layer_a": "the layer of A",
    "head_a": "the head of A",
    "layer_b": "the layer of B",
    "head_b": "the head of B",
    "divergence_nats": "between the two heads",
    "kind": "what a row is of: head, layer, link, token; prompt or text",
    "label": "its name for people",
    "side": "the text of a token; query, key or value of a head",
    "position": "the place of a token",
    "token": "that token",
    "effect_nats": "log p with the part minus log p without it",
    "a_nats": "the effect in A",
    "b_nats": "the effect in B",
    "change_nats": "B − A",
    "part": "what a row is of: weight, query, key, head, token, kept, …",
    "name": "its name: a writer, a token, an answer",
    "other": "a second name: of a pair, of a link",
    "value": "the number that a row is about",
    "log_p": "log p of the choice, nats",
    "attention": "what attention adds to a logit, or the share of it that is left",
    "feed_forward": "what the feed-forward part adds to a logit",
    "likeliest": "what would be predicted",
    "p": "its probability",
    "choice": "what the model predicts there, or what was asked for",
    "settled": "1 at the first layer from which the choice stays on top, else 0",
    "writer_stream": "the stream of the head that is read",
    "writer_layer": "its layer",
    "writer_head": "that head",
    "moved": "how far the reading head moves without it",
    "restored": "the share of the answer that comes back",
    "estimate": "the same by the gradient",
    "number": "the number of a part",
    "file": "where it is from",
    "tokens": "how many tokens it has",
    "effect": "log p of the answer with the part minus without it",
    "receiver": "how much later sentences look at it by the receiver heads",
    "log_kl": "log KL of later sentences without it, less what others change there",
    "kl_nats": "KL of later tokens without it",
    "answer_kl_nats": "KL of the answer's tokens without it",
    "different": "the share of continuations that say something else there",
    "accuracy_without": "the share of right answers of these",
    "accuracy_with": "the share of right answers behind it",
    "answers_kl_nats": "KL between the answers of both",
    "marks": "the scores that stand out: receiver, effect",
    "sentence_N": "the same of each sentence of the answer",
    "lens": "the lens",
    "left_out": "why a lens does not apply",
    "run": "the run, where there are several",
    "step": "the step of training",
    "verdicts": "what holds of the head since",
    "rule": "the rule of the cache",
    "keys": "the share of keys that it holds",
    "cost_nats": "nats a token that the rule costs",
    "changed": "the share of predictions that change",
    "source_position": "the place of the word of the source",
    "source_word": "that word",
    "target_position": "the place of the word of the target",
    "target_word": "that word",
    "score": "how sure the pair's alignment is",
    "precision": "the share of links that are possible ones",
    "recall": "the share of sure links that were found",
    "alignment_error": "the alignment error rate",
    "word": "a spoken word",
    "start": "when it begins, in seconds",
    "end": "when it ends",
    "row": "the number of a sentence, word or token that looks, from 0, or all",
    "even": "the share that an even look would give",
    "set": "a set of heads",
    "heads": "its heads, 0.1,1.0",
    "error": "the mean error, in seconds",
    "start_error": "of beginnings",
    "end_error": "of ends",
    "model": "a model",
    "from": "where it is: shipped, or in the cache of Hugging Face",
    "about": "what it is",
    "mechanism": "a mechanism",
    "commands": "the commands that offer it",
    "summary": "what it does",
    "lesson": "a lesson",
    "fact": "what is known of a model",
}
"""What each column holds, in every table that has it. Names in capitals stand for several."""


def columns() -> Iterator[str]:
    """What every table and every document holds."""
    from attnviz.features.schemas.layouts import LAYOUTS, json_schema
    from attnviz.storage.columns import KIND_OF, TABLES

    yield (
        "# Columns and fields\n\nThe columns of every table that `-f tsv` and `-f csv` write, by "
        "the name of the document with the same numbers; then the fields of every document. "
        "`python docs/tables.py` writes this page."
    )
    yield (
        "Names in capitals stand for several; `MEASURE_low`, `MEASURE_high`, `writes` and `run` "
        "are there where they have values. A layer or head is a number, unless it is no single "
        "one, which has a name."
    )
    rows: Rows = [(f"`{name}`", ", ".join(own.split())) for name, own in TABLES.items()]
    yield table(("table", "columns"), rows)
    rows = [(f"`{one}`", KINDS[KIND_OF[one]], about) for one, about in MEANINGS.items()]
    yield table(("column", "type", "what it holds"), rows)
    yield (
        "Every document has `schema` and `kind`, and these fields. A field without a type is a "
        "text; [] is a list. Provenance is `source, model, trained bool, device, dtype, "
        "settings {…}, steps [text], notes [text], versions {…}`; a place is the number of a "
        "layer or head."
    )
    rows = []
    for name, layout in LAYOUTS.items():
        schema = json_schema(name)
        types = schema.get("$defs", {})
        top = types[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        own = fields({n: one for n, one in top["properties"].items() if n not in HEAD}, types)
        rows.append(
            (f"`{name}`", layout.summary, ", ".join([*own, *(["…"] if layout.open else [])]))
        )
    yield table(("document", "what it is", "fields"), rows)


def fields(properties: Any, types: Any) -> list[str]:
    """Each field with its type behind it."""
    return [f"{name} {type_of(one, types)}".rstrip() for name, one in properties.items()]


def type_of(part: Any, types: Any) -> str:
    """The type of a part of a schema in short."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        known = {"Provenance": "Provenance"} | ({"why": "as why"} if name.endswith("Why") else {})
        return known.get(name) or known.get("why") or type_of(types[name], types)
    if "anyOf" in part:
        kinds = (type_of(one, types) for one in part["anyOf"] if one.get("type") != "null")
        return " or ".join(dict.fromkeys(filter(None, kinds)))
    if "properties" in part:
        return "{" + ", ".join(fields(part["properties"], types)) + "}"
    kind = part.get("type", "")
    if kind == "array":
        items = part.get("prefixItems") or [part.get("items") or {}]
        return f"[{', '.join(type_of(one, types) or 'text' for one in items)}]"
    if isinstance(kind, list):
        return "place" if {"integer", "string"} <= {*kind} else TYPES[kind[0]]
    return "{…}" if kind == "object" else TYPES.get(kind, "")


def table(head: tuple[str, ...], rows: Rows) -> str:
    """A table of Markdown."""
    lines = [" | ".join(line).replace("\n", " ") for line in (head, ("---",) * len(head), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


PAGES: dict[str, Callable[[], Iterator[str]]] = {"names": names, "columns": columns}


def made(name: str) -> str:
    """The text of a page."""
    return "\n\n".join(PAGES[name]()) + "\n"


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / "tables" / f"{page}.md").write_text(made(page), encoding="utf-8")
