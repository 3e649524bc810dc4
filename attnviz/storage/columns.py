"""The columns of every table (.csv, .tsv): what each holds, and its type."""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

ColumnKind = Literal["text", "place", "whole", "number"]
"""A place is the number of a layer or head, or the name of what is no single one."""

COLUMNS: dict[str, tuple[ColumnKind, str]] = {
    "id": ("text", "the text's own id, else its number in the input"),
    "stream": ("text", "which attention: self, causal, encoder, decoder, cross, …"),
    "layer": ("place", "a layer"),
    "head": ("place", "a head of that layer"),
    "query_position": ("whole", "the place of the token that attends"),
    "query_token": ("text", "that token"),
    "key_position": ("whole", "the place of the token that is attended to"),
    "key_token": ("text", "that token"),
    "weight": ("number", "the share of attention, or of a lens its value"),
    "role": ("text", "a clear role, such as previous-token"),
    "role_share": ("number", "the share of attention that has it"),
    "MEASURE": ("number", "a measure, or an estimate, under its own name"),
    "MEASURE_uniform": ("number", "what uniform attention would have"),
    "MEASURE_low": ("number", "the lower end of its 95 % interval"),
    "MEASURE_high": ("number", "the upper end"),
    "rests_on": ("text", "the role of the key that a head looks at where it has nothing to do"),
    "rests_share": ("number", "the share of attention that rests there"),
    "writes": ("text", "the tokens that a head argues for"),
    "other_layer": ("place", "the layer of the other head"),
    "other_head": ("place", "the other head"),
    "divergence": ("number", "of two heads, in nats"),
    "relation": ("text", "a relation of the treebank"),
    "cases": ("whole", "how often it occurs"),
    "offset": ("whole", "key − query in tokens; `<-16` and `>16` for all beyond"),
    "offset_share": ("number", "the share of cases at the most frequent offset"),
    "toward": ("text", "head or dependent: where links point"),
    "share": ("number", "a share of cases, or of attention"),
    "measure": ("text", "the name of a measure"),
    "mean": ("number", "a mean over texts, or over occurrences"),
    "sd": ("number", "the standard deviation between texts"),
    "low": ("number", "the lower end of a 95 % interval"),
    "high": ("number", "the upper end"),
    "uniform": ("number", "what uniform attention would have"),
    "texts": ("whole", "how many texts have a value"),
    "class": ("text", "the class of the key"),
    "query": ("text", "the word that attends"),
    "key": ("text", "the word that is attended to"),
    "count": ("whole", "how often they occur"),
    "rank": ("whole", "the place in an order, from 1"),
    "text": ("text", "a text, or a part of one"),
    "layer_a": ("place", "the layer of A"),
    "head_a": ("place", "the head of A"),
    "layer_b": ("place", "the layer of B"),
    "head_b": ("place", "the head of B"),
    "divergence_nats": ("number", "between the two heads"),
    "kind": ("text", "what a row is of: head, layer, link, token; prompt or text"),
    "label": ("text", "its name for people"),
    "side": ("text", "the text of a token; query, key or value of a head"),
    "position": ("whole", "the place of a token"),
    "token": ("text", "that token"),
    "effect_nats": ("number", "log p with the part minus log p without it"),
    "a_nats": ("number", "the effect in A"),
    "b_nats": ("number", "the effect in B"),
    "change_nats": ("number", "B − A"),
    "part": ("text", "what a row is of: weight, query, key, head, token, kept, …"),
    "name": ("text", "its name: a writer, a token, an answer"),
    "other": ("text", "a second name: of a pair, of a link"),
    "value": ("number", "the number that a row is about"),
    "log_p": ("number", "log p of the choice, nats"),
    "attention": ("number", "what attention adds to a logit, or the share of it that is left"),
    "feed_forward": ("number", "what the feed-forward part adds to a logit"),
    "likeliest": ("text", "what would be predicted"),
    "p": ("number", "its probability"),
    "choice": ("text", "what the model predicts there, or what was asked for"),
    "settled": ("whole", "1 at the first layer from which the choice stays on top, else 0"),
    "writer_stream": ("text", "the stream of the head that is read"),
    "writer_layer": ("place", "its layer"),
    "writer_head": ("place", "that head"),
    "moved": ("number", "how far the reading head moves without it"),
    "restored": ("number", "the share of the answer that comes back"),
    "estimate": ("number", "the same by the gradient"),
    "number": ("whole", "the number of a part"),
    "file": ("text", "where it is from"),
    "tokens": ("whole", "how many tokens it has"),
    "effect": ("number", "log p of the answer with the part minus without it"),
    "receiver": ("number", "how much later sentences look at it by the receiver heads"),
    "log_kl": ("number", "log KL of later sentences without it, less what others change there"),
    "kl_nats": ("number", "KL of later tokens without it"),
    "answer_kl_nats": ("number", "KL of the answer's tokens without it"),
    "different": ("number", "the share of continuations that say something else there"),
    "accuracy_without": ("number", "the share of right answers of these"),
    "accuracy_with": ("number", "the share of right answers behind it"),
    "answers_kl_nats": ("number", "KL between the answers of both"),
    "marks": ("text", "the scores that stand out: receiver, effect"),
    "sentence_N": ("number", "the same of each sentence of the answer"),
    "lens": ("text", "the lens"),
    "left_out": ("text", "why a lens does not apply"),
    "run": ("text", "the run, where there are several"),
    "step": ("whole", "the step of training"),
    "verdicts": ("text", "what holds of the head since"),
    "rule": ("text", "the rule of the cache"),
    "keys": ("number", "the share of keys that it holds"),
    "cost_nats": ("number", "nats a token that the rule costs"),
    "changed": ("number", "the share of predictions that change"),
    "source_position": ("whole", "the place of the word of the source"),
    "source_word": ("text", "that word"),
    "target_position": ("whole", "the place of the word of the target"),
    "target_word": ("text", "that word"),
    "score": ("number", "how sure the pair's alignment is"),
    "precision": ("number", "the share of links that are possible ones"),
    "recall": ("number", "the share of sure links that were found"),
    "alignment_error": ("number", "the alignment error rate"),
    "word": ("text", "a spoken word"),
    "start": ("number", "when it begins, in seconds"),
    "end": ("number", "when it ends"),
    "row": ("text", "the number of a sentence, word or token that looks, from 0, or all"),
    "even": ("number", "the share that an even look would give"),
    "set": ("text", "a set of heads"),
    "heads": ("text", "its heads, 0.1,1.0"),
    "error": ("number", "the mean error, in seconds"),
    "start_error": ("number", "of beginnings"),
    "end_error": ("number", "of ends"),
    "model": ("text", "a model"),
    "from": ("text", "where it is: shipped, or in the cache of Hugging Face"),
    "about": ("text", "what it is"),
    "mechanism": ("text", "a mechanism"),
    "commands": ("text", "the commands that offer it"),
    "summary": ("text", "what it does"),
    "lesson": ("text", "a lesson"),
    "fact": ("text", "what is known of a model"),
}
"""What each column holds, in every table that has it. Names in capitals stand for several."""

TABLES: dict[str, str] = {
    "maps": "id stream layer head query_position query_token key_position key_token weight",
    "heads": "stream layer head role role_share MEASURE MEASURE_uniform MEASURE_low MEASURE_high "
    "rests_on rests_share writes",
    "similarity": "stream layer head other_layer other_head divergence",
    "treebank": "relation cases offset offset_share toward layer head share",
    "corpus --statistics measures": "stream layer head measure mean sd low high uniform texts",
    "corpus --statistics positions": "stream layer head offset mean share",
    "corpus --statistics classes": "stream layer head class share uniform",
    "corpus --statistics pairs": "stream layer head query key mean count",
    "corpus --statistics links": "stream layer head rank weight query key id text",
    "comparison": "layer_a head_a layer_b head_b divergence_nats",
    "ablation": "kind label stream layer side head query_position key_position position "
    "effect_nats low high texts",
    "ablation-comparison": "kind label a_nats b_nats change_nats",
    "why": "part name other role value low high",
    "layers": "position token layer likeliest p choice log_p rank settled attention feed_forward",
    "wiring": "stream layer head side writer_stream writer_layer writer_head moved low high",
    "answer": "part stream layer head name other value",
    "answers": "id part stream layer head name other value",
    "contrast": "stream layer head position token key_position key_token restored estimate",
    "sources": "number file tokens effect sentence_N MEASURE text",
    "trace": "number tokens receiver log_kl kl_nats answer_kl_nats different accuracy_without "
    "accuracy_with answers_kl_nats marks text",
    "lenses": "lens texts MEASURE MEASURE_low MEASURE_high left_out",
    "history": "run step stream layer head role MEASURE verdicts",
    "chat": "layer head row text part tokens share even",
    "cache": "kind rule layer head texts keys attention cost_nats low high changed",
    "alignment": "id source_position source_word target_position target_word score",
    "scores": "layer head precision recall alignment_error",
    "times": "word start end",
    "models": "model from about",
    "mechanisms": "mechanism commands summary",
    "lessons": "lesson summary",
    "facts": "fact value",
    "example-files": "file about",
    "time-errors": "set heads error start_error end_error",
}
"""The columns of each table, in order, under the name of the document with the same numbers."""
_WHOLE = re.compile("-?(0|[1-9][0-9]{0,14})")


def columns_of(table: str) -> tuple[str, ...]:
    """The columns of a table that has the same ones whatever it is of."""
    return tuple(TABLES[table].split())


def is_header(names: Sequence[str]) -> bool:
    """Whether these are the columns of a table of attnviz, up to those that differ by the run."""
    names = [one for one in names if one != "run"]
    for table in TABLES:
        columns = [one for one in columns_of(table) if one not in ("run", "writes")]
        usual = [*takewhile(str.islower, columns)]
        if names == columns or (len(usual) < len(columns) and names[: len(usual)] == usual):
            return True
    return False


def value_of(column: str, cell: str) -> str | int | float | None:
    """What a cell holds; None where there is no value.

    A column without a row of its own, of a measure or of a lesson, has numbers or texts.
    """
    kind = COLUMNS[column][0] if column in COLUMNS else ""
    if kind == "text" or not cell:
        return cell if kind == "text" else None
    if kind != "number" and _WHOLE.fullmatch(cell):
        return int(cell)
    try:
        return cell if kind == "place" else float(cell)
    except ValueError:
        return cell
