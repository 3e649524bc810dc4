import numpy as np

from attnviz.mechanisms.co_attention import co_two_stream

from .rows import HEADS, CoContract


def contract_call(function, inputs, seen):
    return function(inputs[:3], inputs[3:], seen, seen, heads=HEADS)


CONTRACT = CoContract(contract_call, sequences=6, keys=(1, 2, 4, 5), summarised=False)


RANDOM = np.random.default_rng(13)
FIRST = tuple(RANDOM.normal(size=(3, 4)) for _ in range(3))
SECOND = tuple(RANDOM.normal(size=(5, 4)) for _ in range(3))


def slowly(query, key, value, heads):
    """Each head's attention by its definition, a query at a time."""
    size = query.shape[1] // heads
    output, weights = np.zeros_like(query), np.zeros((heads, len(query), len(key)))
    for head in range(heads):
        columns = range(head * size, (head + 1) * size)
        for i in range(len(query)):
            scores = [sum(query[i, c] * key[j, c] for c in columns) for j in range(len(key))]
            raised = np.exp(np.array(scores) / np.sqrt(size))
            weights[head, i] = raised / raised.sum()
            for c in columns:
                output[i, c] = weights[head, i] @ value[:, c]
    return output, weights


def test_queries_look_over_the_other_streams_keys():
    for heads in (1, 2):
        outputs, weights = co_two_stream(FIRST, SECOND, heads=heads)
        first = slowly(FIRST[0], SECOND[1], SECOND[2], heads)
        second = slowly(SECOND[0], FIRST[1], FIRST[2], heads)
        for one, other in zip(
            outputs + weights, (first[0], second[0], first[1], second[1]), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)
    seen = np.array([True, False, True])
    _, (over_second, over_first) = co_two_stream(FIRST, SECOND, first_mask=seen)
    assert (over_first[..., 1] == 0).all()
    assert (over_second > 0).all()
    outputs, weights = co_two_stream(FIRST, SECOND, dropout=np.zeros_like)
    assert not any(one.any() for one in outputs + weights)
