"""Models that compute attention by hand, and hand it over only when they run eagerly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

_TWINS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def eager_twin(model: Any) -> Any:
    """The model itself where it runs eagerly, else another around the same weights that does.

    Some families choose the class of their attention when they are made, so that asking a made
    model to be eager does not help. Nothing is copied: the two share their weights.
    """
    if model.config._attn_implementation == "eager":
        return model
    if model not in _TWINS:
        from copy import deepcopy

        from transformers.initialization import no_init_weights

        config = deepcopy(model.config)
        with no_init_weights():
            twin = type(model)._from_config(config, attn_implementation="eager", dtype=model.dtype)
        twin.load_state_dict(model.state_dict(), assign=True)
        _TWINS[model] = twin.to(model.device).eval()
    return _TWINS[model]


ATTENTIONS = {
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}


def handed_over(
    model: Any, inputs: Mapping[str, Any], streams: Sequence[str]
) -> dict[str, Sequence[Any] | None]:
    """What a model gives out as each stream's attention, a tensor or None for each layer."""
    output = model(**inputs, output_attentions=True, return_dict=True)
    together = getattr(output, "attentions", None)
    return {
        stream: getattr(output, ATTENTIONS[stream], None)
        if together is None and stream in ATTENTIONS
        else together
        for stream in streams
    }
