"""Attention as pure functions: (query, key, value, mask) → (output, weights).

Every function takes numpy arrays or torch tensors and answers in the same kind, so that the formula
that runs a sentence on a laptop is the one that a graphics card runs and autograd differentiates.
Shapes: query (…, queries, head size), key (…, keys, head size), value (…, keys, value size);
weights (…, queries, keys). A mask is boolean, True where a query may look, and broadcasts to the
weights' shape. A query that may look nowhere has weights of zero and an output of zero.
"""
