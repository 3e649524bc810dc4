"""Numbers for each head, by topic."""

from attnviz.core.registry import Measure

MEASURES: dict[str, Measure] = {
    "entropy": Measure("Mean entropy of a row, in nats.", "spread:entropy", "entr"),
    "relative-entropy": Measure(
        "Entropy as a share of the most that the visible keys allow.",
        "spread:relative_entropy",
        "rel",
    ),
    "span": Measure(
        "How many keys uniform attention of the same entropy would cover.", "spread:span", "span"
    ),
    "confidence": Measure(
        "Mean of each row's largest weight, without the end token.", "spread:confidence", "conf"
    ),
    "mass": Measure("Mean sum of a row, told where rows do not sum to 1.", "spread:mass", "mass"),
    "empty": Measure(
        "Rows that attend to nothing, told where there are any.", "spread:empty", "none"
    ),
    "informative": Measure(
        "How much of where a head looks neither distance nor popular keys explain, in nats.",
        "distance:informative",
        "info",
    ),
    "distance": Measure(
        "Mean distance between a token and the tokens it attends to, in tokens.",
        "distance:distance",
        "dist",
    ),
    "offset": Measure(
        "Mean signed distance, negative towards the past.", "distance:offset", "offs"
    ),
    "distant": Measure(
        "Share that goes further than 64 tokens, to text behind the first token.",
        "distance:distant",
        "far",
    ),
    "receiver": Measure(
        "Kurtosis of what sentences receive from those four or more away (Bogdan 2025).",
        "shares:receiver",
        "recv",
    ),
    "lookback": Measure(
        "Mean weight on the prompt against that on the model's own output (Chuang 2024).",
        "shares:lookback",
        "back",
    ),
    "patch-distance": Measure(
        "Mean distance between a patch of a picture and those it attends to, in patches.",
        "distance:patch_distance",
        "way",
    ),
    "previous-token": Measure(
        "Share that goes to the token before.",
        "shares:previous_token",
        "prev",
        "acts",
        (0, 114, 178),
    ),
    "next-token": Measure(
        "Share that goes to the token after.", "shares:next_token", "next", "acts", (86, 180, 233)
    ),
    "self": Measure(
        "Share that stays on the token itself.", "shares:own_token", "self", "acts", (68, 68, 68)
    ),
    "same-token": Measure(
        "Share that goes to other places of the same token.",
        "shares:same_token",
        "same",
        "acts",
        (204, 121, 167),
    ),
    "kv-likeness": Measure(
        "How alike a head looks to those that share its keys and values: 1 − divergence in bits.",
        "spread:kv_likeness",
        "kv",
    ),
    "same-group": Measure(
        "Share that goes to tokens whose label is the query's, of tokens that have one.",
        "shares:same_group",
        "own",
    ),
    "first-token": Measure(
        "Share that goes to the first token, from all the others.",
        "shares:first_token",
        "first",
        "rests",
        (230, 159, 0),
    ),
    "special-token": Measure(
        "Share that goes to special tokens.", "shares:special_token", "spec", "rests", (213, 94, 0)
    ),
    "punctuation": Measure(
        "Share that goes to punctuation marks.",
        "shares:punctuation",
        "punc",
        "rests",
        (240, 228, 66),
    ),
    "sink": Measure(
        "Attention that the strongest key gets from those who see it (Gu 2024).",
        "shares:sink",
        "sink",
    ),
    "induction": Measure(
        "On a repeated sequence, share that goes to the token after the earlier copy.",
        "shares:induction",
        "ind",
        "acts",
        (0, 158, 115),
        repeated=True,
    ),
    "duplicate": Measure(
        "On a repeated sequence, share that goes to the earlier copy of the token.",
        "shares:duplicate",
        "dup",
        "acts",
        (140, 211, 184),
        repeated=True,
    ),
    "score-max": Measure("Largest score before the softmax.", "spread:score_max", "smax"),
    "score-mean": Measure("Mean score before the softmax.", "spread:score_mean", "smean"),
    "score-std": Measure(
        "Standard deviation of scores before the softmax.", "spread:score_std", "sstd"
    ),
    "saturated": Measure(
        "Rows of two keys or more that give one key over 0.999.", "spread:saturated", "satur"
    ),
    "log-sum-exp": Measure(
        "Mean over rows of the logarithm of the softmax's denominator.", "spread:log_sum_exp", "lse"
    ),
    "query-norm": Measure("Largest norm of a query.", "spread:query_norm", "|q|"),
    "key-norm": Measure("Largest norm of a key.", "spread:key_norm", "|k|"),
    "value-norm": Measure("Median norm of a value.", "spread:value_norm", "|v|"),
    "sink-value": Measure(
        "Norm of the value at the most attended key against the median (Sun 2024).",
        "spread:sink_value",
        "vsink",
    ),
    "massive": Measure(
        "Largest coordinate of the layer's input against the median (Sun 2024).",
        "spread:massive",
        "peak",
    ),
}
