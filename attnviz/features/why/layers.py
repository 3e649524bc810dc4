"""After which layer the logit of a choice appears (nostalgebraist 2020)."""

from collections.abc import Sequence

import numpy as np

from attnviz.analyses.effects.ablation import token_label
from attnviz.analyses.why import adds_up, rank_parts, role_names
from attnviz.core.writers import LayerRow, LayersReport, WrittenText

CURVED_HEAD = (
    "the model's output layer is not linear, so the parts of a logit are estimates by its slope; "
    "what they miss is counted in the rest"
)


def follow_layers(
    text: WrittenText, row: int, choice: int | None, notes: Sequence[str] = ()
) -> LayersReport:
    """After which layer the logit of a choice appears; None: of the model's prediction."""
    attention = text.attention
    item = attention.main
    last = text.logits(row)
    target = int(last.argmax()) if choice is None else choice
    parts = text.logit_parts(row, target)
    total = float(last[target] - last.mean())
    if not adds_up(parts, total):
        notes = [*notes, CURVED_HEAD]
    # Layers of an encoder reach the logits through the decoder's heads.
    sides = {one.stream for one in attention.maps if one.query_side == item.query_side}
    own = [n for n, writer in enumerate(text.writers) if writer.stream in sides and writer.layer]
    rows = []
    for number, logits in enumerate(text.layer_logits(row)):
        layer = str(number - 1) if number else ""
        sums = {"head": 0.0, "feed-forward": 0.0}
        for place in own:
            writer = text.writers[place]
            if number and writer.layer == layer and writer.kind in sums:
                sums[writer.kind] += float(parts[place])
        below_top = logits - logits.max()
        log_p = float(below_top[target] - np.log(np.exp(below_top).sum()))
        rank = int((logits > logits[target]).sum()) + 1
        likeliest = text.spell(int(logits.argmax()))
        rows.append(LayerRow(layer, sums["head"], sums["feed-forward"], log_p, rank, likeliest))
    heads = np.where([writer.kind == "head" for writer in text.writers], parts, 0.0)
    other = total - sum(one.attention + one.feed_forward for one in rows)
    name = token_label(item.query_tokens, row)
    return LayersReport(
        caption=f"{attention.provenance.title} · after {name}",
        choice=text.spell(target),
        position=name,
        rows=tuple(rows),
        other=other,
        logit=total,
        heads=rank_parts(text, heads, item.stream, role_names(attention)),
        notes=(*attention.provenance.notes, *notes),
        provenance=attention.provenance,
    )
