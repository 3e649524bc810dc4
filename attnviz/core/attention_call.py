"""One attention of a pass: its queries, keys and values, and what it made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnviz.core.records import dataclass, field, replace


@dataclass(slots=True, eq=False)
class AttentionCall:
    """One attention, in arrays of numpy or torch: of a kernel, of the network inside or of a head.

    Arrays of a kernel and of the network have axes for texts and heads first; keys and values may
    have fewer heads, which share them in equal groups. Those of one head have neither.
    """

    query: Any  # (…, queries, head size), with norms and positions applied
    key: Any  # (…, keys, head size)
    value: Any  # (…, keys, value size)
    mask: Any = None  # of any kind that a kernel takes; of a head True where a query sees a key
    # A kernel's is (batch, queries, heads, value size), the network's (…, queries, size)
    output: Any = None
    weights: Any = None  # (…, queries, keys), where they are known
    scores: Any = None  # what the softmax was taken of, if queries and keys are unknown
    # Of a kernel, which is called as `kernel(module, query, key, value, mask, **options)`
    kernel: Any = None
    module: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)  # scaling, sinks, windows, …
    path: str = ""  # of its module, such as "encoder.0.self_attention"
    inputs: Any = None  # what queries are projected from
    memory: Any = None  # what keys and values are projected from
    residual: Any = None  # the stream that the output is added to
    projection: Any = None  # W_O (heads × value size, size), once it was called
    # Of a head: what a product of query and key is multiplied by, what position adds to each score,
    # the cap of scores before the softmax, and the logits of sinks (queries, sinks)
    factor: float = 1.0
    position: Any = None
    cap: float | None = None
    sink: Any = None

    def mix(self, value: Any) -> Any:
        """What the kernel gives with other values."""
        return self.kernel(self.module, self.query, self.key, value, self.mask, **self.options)[0]

    def without_gradients(self) -> AttentionCall:
        names = ("query", "key", "value", "output", "weights")
        own = {name: getattr(self, name) for name in names}
        return replace(self, **{n: one.detach() for n, one in own.items() if one is not None})
