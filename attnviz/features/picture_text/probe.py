"""Which pixels each position of a sequence is made of, found by probes of processor and model.

First the processor reads pictures whose grey is a coordinate: black and white ones, one that grows
lighter to the right, one that grows lighter downwards, and one grey for each picture. What it makes
of them says which point of which picture every number of its output shows, however it cuts,
resizes, pads, sorts or flattens pictures. Then gradients say which of these numbers the embedding
at each position is made of. While they are taken, no attention of the vision tower gives anything
out and a convolution keeps the middle of its kernel, so that a token is made of its own patches
alone. A gradient of all embeddings at once, each times a power of two, is that power of two times
the plain one wherever a number goes into one embedding: a few passes find them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attnviz.core.errors import ModelError
from attnviz.core.records import dataclass
from attnviz.models.hugging_face.capture.kernel import watch_kernels

Floats = NDArray[np.float64]
Inputs = Mapping[str, Any]
LEVELS = 8  # powers of two that tell embeddings apart in one pass
NEAR = 1e-3  # how near to a power of two a gradient must be
MIXED = 0.02  # share of numbers that may go into more than one embedding
MOST_VECTORS = 64  # of a parameter that may stand between patches
BENT = 0.02  # of a picture's side, how far from a plane points may be
FULL = 0.98  # of the contrast, where a pixel shows nothing of the padding


class ReachedError(Exception):
    """The pass has made what is looked for, and needs to go no further."""


class PlacelessError(ModelError):
    """No position of a sequence stands for a part of a picture."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The part of a picture that each position of a sequence is made of.

    Only positions that are made of pixels are in it. Arrays have one number for each of them.
    """

    places: NDArray[np.int64]  # in the sequence, in order
    first: NDArray[np.int64]  # its picture, or the first of the frames
    last: NDArray[np.int64]  # the last of the frames
    x: Floats  # its middle, in pixels of the picture
    y: Floats
    width: Floats  # estimated from the spread of its pixels
    height: Floats
    names: Mapping[int, str]  # of positions that hold a vector of the model instead


def find_cells(
    model: Any,
    made_of: Callable[[Sequence[Any]], Inputs],
    pictures: Sequence[Any],
    embed: Callable[[Inputs], Any],
) -> Cells:
    """The parts of pictures that stand behind each position of the sequence.

    Args:
        model: the model, on its device.
        made_of: the model's inputs of pictures, with the prompt.
        pictures: those that are read.
        embed: the sequence of embeddings that inputs become, shape (1, positions, width).

    Raises:
        ModelError: the model reads pictures in a way that the probes cannot follow.
    """
    points = find_points(made_of, pictures)
    inputs, reason = made_of(pictures), None
    # A picture that is read twice may be blurred in one of its inputs.
    alone = [{name: points[name]} for name in points if len(points) > 1]
    for read, across in ((points, False), (points, True), *((one, False) for one in alone)):
        try:
            with without_mixing(model, across=across):
                owners, embeddings = find_owners(embed, inputs, [*read])
            points = read
            break
        except PlacelessError as error:
            reason = reason or error
    else:
        assert reason is not None
        raise reason
    picture, x, y, owner = (
        np.concatenate(parts)
        for parts in zip(
            *((*points[name].reshape(3, -1), owners[name].ravel()) for name in points),
            strict=True,
        )
    )
    valid = (owner >= 0) & np.isfinite(x)
    picture, x, y, owner = picture[valid], x[valid], y[valid], owner[valid]
    places, owner, count = np.unique(owner, return_inverse=True, return_counts=True)

    def mean(values: Floats) -> Floats:
        return np.bincount(owner, values) / count

    middle_x, middle_y = mean(x), mean(y)
    first, last = np.full(len(places), np.inf), np.full(len(places), -np.inf)
    np.minimum.at(first, owner, picture)
    np.maximum.at(last, owner, picture)
    return Cells(
        places,
        first.astype(np.int64),
        last.astype(np.int64),
        middle_x,
        middle_y,
        np.sqrt(12 * mean((x - middle_x[owner]) ** 2)),
        np.sqrt(12 * mean((y - middle_y[owner]) ** 2)),
        _own_vectors(model, embeddings),
    )


def _own_vectors(model: Any, embeddings: Any) -> dict[int, str]:
    """The positions that hold a vector which the model has learned, by its name ([newline])."""
    names = dict[int, str]()
    for name, vectors in model.named_parameters():
        if (
            vectors.shape[-1:] != embeddings.shape[-1:]
            or vectors.numel() > MOST_VECTORS * vectors.shape[-1]
        ):
            continue
        for vector in vectors.reshape(-1, vectors.shape[-1]):
            short = name.rpartition(".")[2].removeprefix("image_")
            same = (embeddings == vector.to(embeddings.dtype)).all(dim=-1).nonzero().ravel()
            names |= dict.fromkeys(same.tolist(), f"[{short}]")
    return names


def find_points(
    made_of: Callable[[Sequence[Any]], Inputs], pictures: Sequence[Any]
) -> dict[str, Floats]:
    """The picture, x and y that each number of the processor's output shows, by input.

    Returns:
        Arrays of shape (3, *shape of the input); NaN where it shows no picture.
    """
    sizes = [picture.size for picture in pictures]

    def read(shade: Callable[[int, int, int], NDArray[Any]]) -> Inputs:
        return made_of([_grey(shade(n, *size), size) for n, size in enumerate(sizes)])

    most = max(len(sizes) - 1, 1)
    black = read(lambda *_: np.zeros((1, 1)))
    white = read(lambda *_: np.ones((1, 1)))
    ramps = [
        read(lambda number, *_: np.full((1, 1), number / most)),
        read(lambda _, wide, __: ((np.arange(wide) + 0.5) / wide)[None]),
        read(lambda _, __, high: ((np.arange(high) + 0.5) / high)[:, None]),
    ]
    points = {}
    for name, dark in black.items():
        if not (hasattr(dark, "is_floating_point") and dark.is_floating_point()):
            continue
        if any(one[name].shape != dark.shape for one in (white, *ramps)):
            raise ModelError("the processor cuts a picture by what it shows, not by its size alone")
        low, *others = (_numbers(one[name]) for one in (black, white, *ramps))
        span = others[0] - low
        if not span.any():
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            number, x, y = ((one - low) / np.where(span, span, np.nan) for one in others[1:])
        number = np.round(number * most)
        valid = np.nan_to_num(number).astype(int).clip(0, most)
        x *= np.array([wide for wide, _ in sizes])[valid]
        y *= np.array([high for _, high in sizes])[valid]
        points[name] = extend_points(np.stack([number, x, y]), span)
    if not points:
        raise ModelError("the processor makes no pixels of a picture that differ by its shade")
    return points


def _numbers(tensor: Any) -> Floats:
    return np.asarray(tensor.float().cpu().numpy(), dtype=np.float64)


def _grey(shade: NDArray[Any], size: tuple[int, int]) -> Any:
    levels = np.broadcast_to(np.round(255 * shade).astype(np.uint8), size[::-1])
    return Image.fromarray(np.stack([levels] * 3, axis=-1))


def extend_points(points: Floats, span: Floats) -> Floats:
    """Points with those of the padding: each whole image goes on as a plane, outside the picture.

    The plane also evens out the steps of the grey. What is no plane (patches that stand in a row)
    is left as it is.
    """
    if points.ndim < 5:  # patches, not images of shape (…, colours, height, width)
        return points
    rows, columns = np.mgrid[: points.shape[-2], : points.shape[-1]]
    plane = np.stack([np.ones(rows.size), rows.ravel(), columns.ravel()], axis=1)
    flat = points.reshape(3, -1, points.shape[-3], rows.size)
    contrast = np.abs(span).reshape(flat.shape[1:])
    whole = contrast >= FULL * contrast.max(axis=-1, keepdims=True)
    result = flat.copy()
    for image in range(flat.shape[1]):
        visible = (np.isfinite(flat[1, image]) & whole[image]).all(axis=0)
        if visible.sum() < 3 or len(set(flat[0, image, 0, visible])) > 1:
            continue
        inside = plane[visible]
        if np.linalg.matrix_rank(squares := inside.T @ inside) < 3:
            continue
        values = flat[1:, image][:, :, visible].mean(axis=1)
        planes = np.linalg.solve(squares, inside.T @ values.T)
        off = np.median(np.abs(inside @ planes - values.T), axis=0)
        if (off > BENT * np.ptp(values, axis=1)).any():
            continue
        result[1:, image] = (plane @ planes).T[:, None]
        result[0, image] = flat[0, image, 0, visible][0]
    return result.reshape(points.shape)


def find_owners(
    embed: Callable[[Inputs], Any], inputs: Inputs, names: Sequence[str]
) -> tuple[dict[str, NDArray[np.int64]], Any]:
    """The position whose embedding each number of the pixels goes into, by input; -1: none.

    Returns:
        Arrays of the inputs' shapes, and the embeddings, shape (positions, width).
    """
    import torch

    pixels = {name: inputs[name].detach().clone().requires_grad_() for name in names}
    with torch.enable_grad():
        embeddings = embed({**inputs, **{name: one * 1 for name, one in pixels.items()}})[0]
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(embeddings.shape[-1], generator=generator)
        scores = embeddings.float() @ weights.to(embeddings.device)

        def gradient(codes: Any) -> Floats:
            parts = torch.autograd.grad(
                scores,
                [*pixels.values()],
                codes,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            return np.concatenate([_numbers(part).ravel() for part in parts])

        everyone = torch.ones_like(scores)
        owners = decode_owners(gradient, everyone)
        if owners is None and (pooled := find_pooled(gradient, everyone)) is not None:
            everyone[pooled] = 0
            owners = decode_owners(gradient, everyone)
    if owners is None:
        raise PlacelessError("a patch goes into more than one token, so that none has a place")
    ends = np.cumsum([one.numel() for one in pixels.values()])[:-1]
    parts = np.split(owners, ends.tolist())
    by_input = {
        name: part.reshape(tuple(one.shape))
        for (name, one), part in zip(pixels.items(), parts, strict=True)
    }
    return by_input, embeddings.detach()


def decode_owners(gradient: Callable[[Any], Floats], everyone: Any) -> NDArray[np.int64] | None:
    """The position that each number goes into, -1 for none; None if many go into several."""
    plain = gradient(everyone)
    entries = np.flatnonzero(plain)
    if not len(entries):
        raise PlacelessError("no token of the sequence is made of patches of its own")
    position = np.arange(len(everyone))
    number, clear, scale = np.zeros(len(entries), np.int64), np.ones(len(entries), bool), 1
    while scale < len(position):
        digits = position // scale % LEVELS
        scaled = gradient(everyone * everyone.new_tensor(2.0 ** (digits - LEVELS // 2)))
        with np.errstate(divide="ignore", invalid="ignore"):
            power = np.log2(scaled[entries] / plain[entries]) + LEVELS // 2
        digit = np.nan_to_num(np.round(power), posinf=-1, neginf=-1)
        clear &= (np.abs(power - digit) < NEAR) & (digit >= 0) & (digit < LEVELS)
        number += scale * digit.astype(np.int64)
        scale *= LEVELS
    if clear.mean() < 1 - MIXED:
        return None
    owners = np.full(plain.shape, -1, dtype=np.int64)
    owners[entries[clear]] = number[clear]
    return owners


def find_pooled(gradient: Callable[[Any], Floats], everyone: Any) -> int | None:
    """The one position that is made of all pixels, as their mean is; None without one.

    From one end or the other, it is the position with which all that is used is first reached.
    """
    whole, length = np.count_nonzero(gradient(everyone)), len(everyone)
    for backwards in (False, True):
        none, every = 0, length
        while every - none > 1:
            few = (none + every) // 2
            codes = everyone.clone()
            codes[slice(0, length - few) if backwards else slice(few, None)] = 0
            none, every = (
                (none, few) if np.count_nonzero(gradient(codes)) == whole else (few, every)
            )
        one = length - every if backwards else every - 1
        codes = everyone * 0
        codes[one] = 1
        if np.count_nonzero(gradient(codes)) == whole:
            return one
    return None


def embeddings_of(model: Any, inputs: Inputs, length: int, *, plain: bool = False) -> Any:
    """What the text model reads at each position, shape (1, length, width), with its graph.

    Where pictures are added to the states of its first layers, these states. `plain`: embeddings
    that need no gradient will do.
    """
    reached_at, inside = list[Any](), list[Any]()

    def look(_: Any, states: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        embeddings: Any = keywords.get("inputs_embeds")
        if embeddings is not None:
            inside.append(embeddings)
        elif inside or plain:  # some models have no module for their text
            embeddings = keywords.get("hidden_states", next(iter(states), None))
        if embeddings is None or not (plain or getattr(embeddings, "requires_grad", False)):
            return
        if tuple(getattr(embeddings, "shape", ())[:2]) == (1, length) and embeddings.ndim == 3:
            reached_at.append(embeddings)
            raise ReachedError

    with ExitStack() as hooks:
        for part in model.modules():
            hooks.callback(part.register_forward_pre_hook(look, with_kwargs=True).remove)
        try:
            model(**inputs)
        except ReachedError:
            return reached_at[0]
    raise PlacelessError("the pictures are not embedded in the sequence of the text")


@contextmanager
def without_mixing(model: Any, *, across: bool = False) -> Iterator[None]:
    """A model in which each token is made of its own patches alone, and no weight is learned.

    Attention of tokens to each other gives nothing out; that of queries to patches stays, or with
    `across` gives nothing out as well.
    """
    import torch

    convolutions = torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d
    trainable = [one for one in model.parameters() if one.requires_grad]

    def alone(call: Any) -> Any:
        """What a call of a kernel gives out, if it gives each token what others hold."""
        mixes = across or call.query.shape[2] == call.key.shape[2]
        return torch.zeros_like(call.output) if mixes else call.output

    with watch_kernels(alone), ExitStack() as undo:
        for one in trainable:
            undo.callback(one.requires_grad_)
            one.requires_grad = False
        for part in model.modules():
            name = type(part).__name__
            if "Attention" in name and not any(
                "Attention" in type(other).__name__ for other in part.children()
            ):
                nothing = partial(_nothing, across=across)
                undo.callback(part.register_forward_hook(nothing, with_kwargs=True).remove)
            elif isinstance(part, convolutions) and any(
                size > step for size, step in zip(part.kernel_size, part.stride, strict=True)
            ):
                whole = part.weight.data
                undo.callback(setattr, part.weight, "data", whole)
                part.weight.data = _middle_of(whole, part.kernel_size, part.stride)
        yield


def _nothing(
    _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any, *, across: bool
) -> Any:
    """An attention layer's output as it would be if nothing were attended to.

    Where queries and keys are of two sides, as in pooling by attention, it makes the tokens.
    """
    sides = {one.shape[1] for one in (*args, *kwargs.values()) if getattr(one, "ndim", 0) == 3}
    if len(sides) > 1 and not across:
        return output
    if isinstance(output, tuple):
        return output[0] * 0, *output[1:]
    return output * 0


def _middle_of(kernel: Any, size: Sequence[int], step: Sequence[int]) -> Any:
    """A convolution's kernel that reads no pixel twice: as many in the middle as it steps over."""
    import torch

    mask = torch.zeros_like(kernel)
    inner = [
        slice((whole - min(one, whole) + 1) // 2, (whole - min(one, whole) + 1) // 2 + one)
        for whole, one in zip(size, step, strict=True)
    ]
    mask[(slice(None), slice(None), *inner)] = 1
    return kernel * mask
