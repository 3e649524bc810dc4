"""The columns of every table (.csv, .tsv), and the type of each; docs/tables.py says more."""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

ColumnKind = Literal["text", "place", "whole", "number"]
"""A place is the number of a layer or head, or the name of what is no single one."""

KINDS: dict[ColumnKind, str] = {
    "text": "id stream query_token key_token role rests_on writes relation toward measure class "
    "query key text kind label side token part name other likeliest choice writer_stream "
    "file marks lens left_out run verdicts rule source_word target_word word row set heads "
    "model from about mechanism commands summary lesson fact",
    "place": "layer head other_layer other_head layer_a head_a layer_b head_b writer_layer "
    "writer_head",
    "whole": "query_position key_position cases offset texts count rank position settled number "
    "tokens step source_position target_position",
    "number": "weight role_share MEASURE MEASURE_uniform MEASURE_low MEASURE_high rests_share "
    "divergence offset_share share mean sd low high uniform divergence_nats effect_nats "
    "a_nats b_nats change_nats value log_p attention feed_forward p moved restored estimate "
    "effect receiver log_kl kl_nats answer_kl_nats different accuracy_without accuracy_with "
    "answers_kl_nats sentence_N keys cost_nats changed score precision recall "
    "alignment_error start end even error start_error end_error",
}
"""The kind of each column, in every table that has it. Names in capitals stand for several."""
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}

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
    "pair-score": "kind side position token stream layer head effect value",
    "ranking": "rank score id text",
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
LESSONS = (
    "columns wave_length turns at_position_1 at_the_end",
    "distance base_10000 base_500000 random_at_start random_far_on",
    "head slope halves_every on_8_nearest entropy",
    "head_size score_spread unscaled_entropy scaled_entropy unscaled_largest scaled_largest",
    "temperature entropy span largest answer_to_its_score",
    "keys_read running_maximum old_sum_times running_sum off_by",
    "sink_score match_kept no_match_kept match_output no_match_output",
    "query full_entropy causal_entropy full_strongest causal_strongest share_not_hidden",
    "query alone_entropy padded_entropy masked_entropy share_on_padding padded_off_by "
    "masked_off_by",
    "layers reached furthest share_from_beyond reached_with_a_global",
    "length standard_time_seconds linear_time_seconds standard_memory_bytes linear_memory_bytes",
    "pairs linear_error retention_error delta_rule_error softmax_error delta_newest_error",
    "length computed_without computed_with cache_bytes unshared_bytes",
    "kind key_value_heads numbers_kept share_kept output_change",
    "step loss right head_0_on_needed head_1_on_needed",
    "switched_off first_time_loss again_loss copied on_piece_before on_piece_behind_copy",
    "step head measured unit probability_without",
)
"""The columns of each lesson's table, which no other has."""
_WHOLE = re.compile("-?(0|[1-9][0-9]{0,14})")


def columns_of(table: str) -> tuple[str, ...]:
    """The columns of a table that has the same ones whatever it is of."""
    return tuple(TABLES[table].split())


def is_header(names: Sequence[str]) -> bool:
    """Whether these are the columns of a table of attnviz, up to those that differ by the run."""
    names = [one for one in names if one != "run"]
    if " ".join(names) in LESSONS:
        return True
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
    kind = KIND_OF.get(column, "")
    if kind == "text" or not cell:
        return cell if kind == "text" else None
    if kind != "number" and _WHOLE.fullmatch(cell):
        return int(cell)
    try:
        return cell if kind == "place" else float(cell)
    except ValueError:
        return cell
