"""What each link adds to a logit (direct logit attribution, Elhage 2021)."""

import numpy as np

from attnviz.core.attention_map import Attention
from attnviz.core.effects import HeadAt
from attnviz.core.writers import AskedLogits
from attnviz.features.lenses.layered import through_lens

NEAR = 1e-3  # a note is given if the parts miss the logit by more, relative to its size
UNIT = "logit of what is predicted, above the mean of all choices"


def logits(inputs: AskedLogits) -> Attention:
    """What each link adds to the logit of what is predicted from its query.

    Additive, with the last norm's statistics held: all links of a row, the feed-forward parts,
    embeddings and biases sum to the logit above its mean over all choices.
    """
    text, attention = inputs.text, inputs.attention
    slopes = {row: text.slopes(row, choice) for row, choice in inputs.choices.items()}
    maps = []
    for item in attention.maps:
        cells = np.zeros(item.weights.shape, dtype=np.float64)
        for place, layer in enumerate(item.layers):
            for head in range(len(item.heads)):
                value = text.sides(HeadAt(item.stream, layer, head)).value.astype(np.float64)
                for row, own in slopes.items():
                    if (item.stream, layer) in own and row < len(item.query_tokens):
                        per_key = value @ own[item.stream, layer][head]
                        cells[place, head, row] = item.weights[place, head, row] * per_key
        maps.append(item.with_weights(cells.astype(np.float32), values="signed", unit=UNIT))
    last = max(inputs.choices)
    whole = text.logits(last)
    total = float(whole[inputs.choices[last]] - whole.mean())
    rows = (item.weights[:, :, last] for item in maps if last < len(item.query_tokens))
    of_heads = float(sum(row.sum() for row in rows))
    name = text.spell(inputs.choices[last])
    parts = float(text.logit_parts(last, inputs.choices[last]).sum())
    note = f"heads add {of_heads:+.2f} to the logit of '{name}', {total:+.2f} above the mean of all"
    notes = [note]
    if abs(parts - total) > NEAR * max(abs(total), 1.0):
        notes.append(
            "this model's output layer is not linear, so each cell is an estimate by its "
            f"slope: all parts sum to {parts:+.2f}, and the logit is {total:+.2f}"
        )
    facts = {"output": name, "read from": [*inputs.choices]}
    return through_lens("logits", attention, tuple(maps), tuple(notes), facts)
