"""One mask out of those that a layer was given; True always means that a query may look."""

from __future__ import annotations

import torch
from torch import Tensor

from attnviz.errors import UsageError


def visible(mask: Tensor | None, key_mask: Tensor | None) -> Tensor | None:
    """What both masks leave to see, broadcastable to (…, queries, keys); None: everything.

    Args:
        mask: boolean of shape (queries, keys) or (…, queries, keys), or None.
        key_mask: boolean of shape (…, keys), False for padding, or None.

    Raises:
        UsageError: a mask that is not boolean; numbers to add to scores are a different thing.
    """
    for given in (mask, key_mask):
        if given is not None and given.dtype != torch.bool:
            raise UsageError(
                f"a mask must be boolean, True where a query may look, but is {given.dtype}: "
                "compare it first, as in mask == 1, or mask == 0 where it is added to scores"
            )
    if key_mask is None:
        return mask
    keys = key_mask[..., None, :]
    return keys if mask is None else mask & keys


def visible_to_heads(query: Tensor, mask: Tensor | None, key_mask: Tensor | None) -> Tensor | None:
    """The same with an axis for heads, broadcastable to (…, heads, queries, keys).

    Args:
        query: shape (…, queries, size); tells a mask for each item from one for each head.
        mask: boolean of shape (queries, keys), (…, queries, keys) or (…, heads, queries, keys).
        key_mask: boolean of shape (…, keys), False for padding.

    Raises:
        UsageError: a mask that is not boolean.
    """
    if mask is not None and mask.ndim <= query.ndim:
        mask = mask[..., None, :, :]
    return visible(mask, None if key_mask is None else key_mask[..., None, :])
