"""Attention as pure functions: (query, key, value, mask) → (output, weights).

Every function takes numpy arrays or torch tensors and answers in the same kind, so that the formula
that runs a sentence on a laptop is the one that a graphics card runs and autograd differentiates.
Shapes: query (…, queries, head size), key (…, keys, head size), value (…, keys, value size);
weights (…, queries, keys). A mask is boolean, True where a query may look, and broadcasts to the
weights' shape. A query that may look nowhere has weights of zero and an output of zero.
"""

from attnviz.core.registry import Mechanism

MECHANISMS: dict[str, Mechanism] = {
    "naive": Mechanism(
        "Attention of the inputs over themselves, without projections or scaling.",
        "dot_product:naive",
        projected=False,
        scaled=False,
        many_heads=False,
    ),
    "single-head": Mechanism(
        "Attention of one head over projected inputs, without scaling.",
        "dot_product:single_head",
        scaled=False,
        many_heads=False,
    ),
    "scaled": Mechanism(
        "Scaled dot-product attention: scores divided by the root of the head size.",
        "dot_product:scaled",
        many_heads=False,
        scaled=True,
    ),
    "causal": Mechanism(
        "Scaled dot-product attention in which no position sees a later one.",
        "dot_product:causal",
        ("self",),
        causal="causal",
        many_heads=False,
        scaled=True,
    ),
    "multi-head": Mechanism(
        "Scaled dot-product attention in several heads at once, joined again.",
        "dot_product:multi_head",
        scaled=True,
    ),
    "cross": Mechanism(
        "Multi-head attention of one sequence's queries over another's keys and values.",
        "dot_product:cross",
        ("cross",),
        scaled=True,
    ),
    "linear": Mechanism(
        "Linear attention: a feature map in place of the softmax, at a cost linear in length.",
        "linear:linear",
        causal="causal-linear",
        many_heads=False,
    ),
    "causal-linear": Mechanism(
        "Linear attention by prefix sums, in which no position sees a later one.",
        "linear:causal_linear",
        ("self",),
        causal="causal-linear",
        many_heads=False,
    ),
    "additive": Mechanism(
        "Attention scored by a small network of the query plus the key, v · tanh(q + k).",
        "weighing:additive",
        learned={"w_score": "head 1"},
    ),
    "relative": Mechanism(
        "Attention with a learned vector for each distance, added to the keys and to the values.",
        "relative:relative",
        ("self",),
        learned={"relative_key": "5 head", "relative_value": "5 head"},
    ),
    "relative-bias": Mechanism(
        "Attention with a learned number for each range of distances, added to the scores (T5).",
        "relative:relative_bias",
        ("self",),
        learned={"bias": "32 heads"},
    ),
    "alibi": Mechanism(
        "Attention with a penalty that grows with distance, at a slope of its own for each head.",
        "relative:alibi",
        ("self",),
    ),
    "rotary": Mechanism(
        "Attention whose queries and keys are turned, pair by pair, by their position (RoPE).",
        "relative:rotary",
        ("self",),
    ),
    "grouped-query": Mechanism(
        "Attention whose heads share keys and values in groups.",
        "dot_product:grouped_query",
        groups="half",
    ),
    "multi-query": Mechanism(
        "Attention whose heads all share the same keys and values.",
        "dot_product:multi_query",
        groups="one",
    ),
    "latent": Mechanism(
        "Attention whose keys and values unfold from one small latent vector a position (MLA).",
        "dot_product:latent",
        ("self",),
        projected=False,
        learned={
            "w_query": "input size",
            "w_turned_query": "input turned_heads",
            "w_latent": "input latent",
            "w_up_key": "latent size",
            "w_up_value": "latent size",
            "w_turned_key": "input turned",
        },
    ),
    "sliding-window": Mechanism(
        "Scaled dot-product attention to near keys only, so many positions to either side.",
        "relative:sliding_window",
        ("self",),
        scaled=True,
    ),
    "global-window": Mechanism(
        "Window attention with a few first positions that see everything and are seen by all.",
        "relative:global_window",
        ("self",),
        scaled=True,
    ),
    "sinks": Mechanism(
        "Attention in which a learned sink takes its share of each row and puts nothing out.",
        "weighing:sinks",
        sums="less",
        learned={"sink": "heads"},
    ),
    "soft-cap": Mechanism(
        "Attention whose scores are bent to stay within a cap, cap · tanh(score / cap).",
        "weighing:soft_cap",
    ),
    "differential": Mechanism(
        "Attention as the difference of two softmaxes, so that what both see cancels out.",
        "weighing:differential",
        sums="any",
        signed=True,
        learned={"balance": "4 half_head"},
    ),
    "gated": Mechanism(
        "Scaled dot-product attention whose output passes a gate that each query sets itself.",
        "weighing:gated",
        learned={"gate": "queries size"},
        scaled=True,
    ),
    "sigmoid": Mechanism(
        "Attention that weighs each key by itself, by a sigmoid instead of a softmax.",
        "weighing:sigmoid",
        sums="any",
    ),
    "online": Mechanism(
        "Scaled dot-product attention tile by tile, with a running maximum and sum of each row.",
        "weighing:online",
        scaled=True,
    ),
    "retention": Mechanism(
        "Linear attention that keeps a fixed share of its state from position to position.",
        "linear:retention",
        ("self",),
        causal="retention",
        sums="any",
        signed=True,
    ),
    "delta-rule": Mechanism(
        "Linear attention that corrects what its state answers to a key, instead of adding to it.",
        "linear:delta_rule",
        ("self",),
        causal="delta-rule",
        sums="any",
        signed=True,
        learned={"beta": "keys heads"},
    ),
    "gated-delta-rule": Mechanism(
        "Linear attention by the delta rule, whose state also fades as much as each position says.",
        "linear:gated_delta_rule",
        ("self",),
        causal="gated-delta-rule",
        sums="any",
        signed=True,
        learned={"beta": "keys heads", "alpha": "keys heads"},
    ),
    "co-parallel": Mechanism(
        "Co-attention of two sequences through one shared affinity, both summarised at once.",
        "co_attention:co_parallel",
        ("cross",),
        projected=False,
        learned={
            "w_affinity": "first second",
            "w_first": "first hidden",
            "w_second": "second hidden",
            "first_score": "hidden",
            "second_score": "hidden",
        },
        streams={"affinity": "affinity", "a": "weights_first", "b": "weights_second"},
        module="ParallelCoAttention",
        many_heads=False,
    ),
    "co-alternating": Mechanism(
        "Co-attention in three turns: summarise one, let it guide the other, and back again.",
        "co_attention:co_alternating",
        ("cross",),
        projected=False,
        learned={
            "w_first_inputs": "first hidden",
            "w_first_score": "hidden",
            "w_second_inputs": "second hidden",
            "w_second_guide": "first hidden",
            "w_second_score": "hidden",
            "w_first_again_inputs": "first hidden",
            "w_first_again_guide": "second hidden",
            "w_first_again_score": "hidden",
        },
        streams={
            "a-guided-by-b": "weights_first",
            "b-guided-by-a": "weights_second",
            "a-alone": "weights_alone",
        },
        module="AlternatingCoAttention",
        many_heads=False,
    ),
    "co-two-stream": Mechanism(
        "Co-attention of two streams, each one's queries over the other's keys and values.",
        "co_attention:co_two_stream",
        ("cross",),
        projected=False,
        learned={
            f"w_{side}_{name}": f"{side} hidden"
            for side in ("first", "second")
            for name in ("query", "key", "value")
        },
        streams={"a-to-b": "weights_first", "b-to-a": "weights_second"},
        module="TwoStreamCoAttention",
    ),
}
