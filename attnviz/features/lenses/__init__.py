"""Lenses that need more than the weights of attention, and how faithful they are."""

from attnviz.core.registry import Lens

LENSES: dict[str, Lens] = {
    "rollout": Lens(
        "How much of each input token is in each position after each layer.", "rollout:rollout"
    ),
    "flow": Lens(
        "The largest flow from each input token to each position after the last layer.",
        "rollout:flow",
    ),
    "gradient": Lens(
        "Attribution of one output to each input token, by gradient-weighted attention.",
        "gradient:gradient",
        "gradients",
    ),
    "effect": Lens(
        "Estimated change of the output's log-probability, in nats, when a link is cut.",
        "effect:effect",
        "effects",
    ),
    "logits": Lens(
        "What each link adds to the logit of what is predicted from its query.",
        "logits:logits",
        "writers",
    ),
    "norm": Lens(
        "Length of each key's contribution to each query, over all heads together.",
        "norm:norm",
        "values",
    ),
}
