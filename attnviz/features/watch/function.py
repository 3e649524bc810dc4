"""Attention of any PyTorch code as it runs: `with attnviz.watch(model) as seen: model(x)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_type_hints

import numpy as np

from attnviz.core.errors import UsageError
from attnviz.core.options import Choice
from attnviz.core.options.look import LookOptions
from attnviz.core.values import check_value
from attnviz.renderers import NO_VIEWS, reports
from attnviz.runs.outputs import save_figure
from attnviz.runs.pipeline import Result, as_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.features.observer.observer import WatchLog, WatchRequest
    from attnviz.features.watch.maps import Names


CALLS = 10
"""Calls of each module that are kept by default."""


class Watched:
    """The attention seen in a block, also while the block still runs."""

    def __init__(self, model: str, request: WatchRequest, log: WatchLog, names: Names) -> None:
        self._facts = model, request, names
        self.log = log

    def attention(self) -> Result:
        """The maps, one for each stream, shape and call, with layers named by the module.

        Where modules are called more than once, a map's stream is "call 1 · self", ….

        Raises:
            AttentionError: there are none, and why.
        """
        request = self._facts[1]
        return self._record(request.batch or 0)

    def records(self) -> list[Result]:
        """The maps of each item of the batch that was kept."""
        numbers = sorted({call.item for call in self.log.captures})
        return [self._record(number) for number in numbers] or [self.attention()]

    def _record(self, item: int) -> Result:
        from attnviz.features.watch.maps import watched_attention

        model, request, names = self._facts
        return as_result(watched_attention(self.log, item, model, request, names), Choice())

    def heatmap(self, file: str | Path | None = None, **look: Unpack[LookOptions]) -> Figure:
        """As `Result.heatmap`."""
        return self.attention().heatmap(file, **look)

    def grid(self, file: str | Path | None = None, **look: Unpack[LookOptions]) -> Figure:
        """As `Result.grid`."""
        return self.attention().grid(file, **look)

    def lines(self, file: str | Path | None = None, **look: Unpack[LookOptions]) -> Figure:
        """As `Result.lines`."""
        return self.attention().lines(file, **look)

    def overlay(
        self,
        word: str | int,
        file: str | Path | None = None,
        *,
        picture: Any = None,
        steps: Literal["mean", "each"] = "mean",
        layers: Literal["mean", "each"] = "mean",
        **look: Unpack[LookOptions],
    ) -> Figure:
        """Where a picture attends to a word, as DAAM shows it (Tang et al., 2023).

        It reads calls whose queries are places of a picture and whose keys are the text (`tokens=`;
        `split=` where both are one sequence). A place shows the share of its attention that goes to
        the word, with the word's pieces and repetitions added up, as a mean over heads. Coarser
        maps are enlarged to the finest without smoothing. The calls of a module are its steps. With
        guidance a batch has items with and without the text: `watch(..., batch=1)` chooses one.

        Args:
            word: one or more words as they are written, found by the text of the tokens, or the
                number of a token.
            file: a .png, .svg or .pdf.
            picture: the picture that was made: a file, an image, or an array of bytes (height,
                width, 3). Its sides give the layout of places; None: a square, without a picture.
            steps: show the mean over the calls of each module, or each.
            layers: show the mean over modules, or each.
            look: how pictures look.

        Raises:
            UsageError: no such word, or no map of a picture against the text.
        """
        from attnviz.core.attention_map import known_mean
        from attnviz.features.image.overlay import (
            Overlaying,
            overlay,
            overlay_grid,
            picture_crop,
        )
        from attnviz.features.watch.maps import word_maps
        from attnviz.renderers.figures.figure import fit_width

        model, request, names = self._facts
        crop = picture_crop(picture)
        ratio = crop.pixels.shape[0] / crop.pixels.shape[1]
        rows, columns, maps = word_maps(self.log, request.batch or 0, request, names, word, ratio)
        means = ["heads"]
        if steps == "mean":
            if len(columns) > 1:
                means.insert(0, f"{len(columns)} steps")
            columns, maps = ["mean"], known_mean(maps, 1, keepdims=True)
        if layers == "mean":
            if len(rows) > 1:
                means.insert(0, f"{len(rows)} layers")
            rows, maps = ["mean"], known_mean(maps, 0, keepdims=True)
        words: dict[str, Any] = {
            "title": f"{model} · “{word}”",
            "subtitle": f"attention to the word, mean over {', '.join(means)}",
            "unit": "share of attention",
            "how": Overlaying("shared"),  # steps and layers are compared with one another
        }
        maps = maps.astype(np.float32)
        if maps.shape[:2] == (1, 1):
            draw = partial(fit_width, overlay, crop, weights=maps[0, 0], **words)
        else:
            words |= {"layers": tuple(rows), "heads": tuple(columns), "columns": "step"}
            draw = partial(fit_width, overlay_grid, crop, weights=maps, **words)
        item = reports.Item(reports.Data(), NO_VIEWS, {"overlay": draw})
        return save_figure(item, "overlay", file, look)

    def page(self, file: str | Path | None = None) -> str:
        """As `Result.page`."""
        return self.attention().page(file)

    def save(self, file: str | Path, *, digits: int | None = None) -> None:
        """As `Result.save`."""
        self.attention().save(file, digits=digits)

    def __repr__(self) -> str:
        counts = f"{sum(self.log.calls.values())} calls of {len(self.log.calls)} modules seen"
        return f"<Watched {self._facts[0]} · {counts}>"

    def _repr_html_(self) -> str | None:
        return self.attention()._repr_html_() if self.log.captures else None


@contextmanager
def watch(
    model: Any = None,
    *,
    only: str | Sequence[str] | None = None,
    first: int | None = None,
    every: int = 1,
    calls: int | Literal["all"] | Sequence[int] | None = None,
    tokens: Sequence[str] | None = None,
    query_tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    split: int | None = None,
    batch: int | Literal["all"] = 0,
    max_size: int = 1024,
    rows: tuple[int, int] | None = None,
    window: tuple[int, int] | None = None,
    max_bytes: int = 2**31,
    eager: bool = False,
    scores: bool = False,
) -> Iterator[Watched]:
    """Read every attention that PyTorch code computes in a block, without changing any of it.

    It sees `F.scaled_dot_product_attention`, `F.multi_head_attention_forward` and the modules of
    torch, flex_attention, `xformers.ops.memory_efficient_attention`, `flash_attn_func`, and
    attention written by hand: a softmax over keys whose result is multiplied with values (matmul,
    bmm, baddbmm, einsum, @). Results keep their bits, and the run its random state and gradients.
    It does not see other threads, nor code that torch.compile or TorchScript has compiled. It sees
    checkpointed code a second time, when that runs again in the backward pass.

    Args:
        model: an `nn.Module`: only its calls are read, and named by their paths in it. None: every
            call in the block, named from the class of the outermost module.
        only: patterns of module paths ("decoder.*.cross_attn").
        first: the most calls to keep of each module.
        every: keep the first and then every N-th call of each module.
        calls: how many of these calls to keep, spread from the first to the last, or their
            numbers from 1, or "all". None: 10, or all if `first` or `every` is given.
        tokens: names for queries and keys. A map of another number of tokens shows their numbers.
        query_tokens: names for queries alone.
        key_tokens: names for keys alone.
        split: how many tokens of a joint sequence of text and picture are text (Flux: the first;
            Stable Diffusion 3: the last, as `split=-77`). Its quarters become streams,
            "text-to-text" to "image-to-image"; their rows sum to the attention to that part, and
            `tokens` name the text. Every longer sequence counts as joint: leave out others by
            `only=`.
        batch: which item of a batch, or "all": `.records()` gives them one by one.
        max_size: the most blocks on a side of a map.
        rows: the first and last query of exact rows.
        window: the first and last token of queries and keys.
        max_bytes: memory for all maps; a note counts the calls beyond it.
        eager: run compiled code uncompiled, so that it is seen.
        scores: also measure the scores before the softmax (`attnviz heads --scores` says which).

    Raises:
        UsageError: an option out of its range.
    """
    values = locals()
    for name, kind in get_type_hints(unwrap(watch)).items():
        if name in values:
            check_value(name, values[name], kind)
    import torch

    from attnviz.features.observer.observer import WatchRequest, observe
    from attnviz.features.watch.maps import Names
    from attnviz.models.hugging_face.capture.region import Region

    if model is not None and not isinstance(model, torch.nn.Module):
        raise UsageError(f"watch needs a torch.nn.Module, not {type(model).__name__}")
    least = {"every": (every, 1), "first": (first, 1), "max_size": (max_size, 1)}
    if batch != "all":
        least["batch"] = (batch, 0)
    for name, (number, lowest) in least.items():
        if number is not None and number < lowest:
            raise UsageError(f"{name}={number} is too small: {lowest} or more")
    if split is not None and (split == 0 or rows or window):
        raise UsageError("split= is a number of tokens, not 0, and takes no rows= or window=")
    region = Region(max_size, rows, window)
    patterns = (only,) if isinstance(only, str) else tuple(only or ())
    item = None if batch == "all" else batch
    if calls is None:
        calls = CALLS if first is None and every == 1 else "all"
    some = _calls_to_keep(calls)
    request = WatchRequest(patterns, first, every, some, item, region, max_bytes, scores)
    queries, keys = (tokens if own is None else own for own in (query_tokens, key_tokens))
    names = Names(queries, keys, split)
    title = "code" if model is None else type(model).__name__
    with observe(model, request, eager=eager) as log:
        yield Watched(title, request, log, names)


def _calls_to_keep(calls: int | str | Sequence[int]) -> int | tuple[int, ...] | None:
    """How many calls to keep, or their numbers; None: all."""
    if isinstance(calls, str) and calls == "all":
        return None
    several = isinstance(calls, list | tuple | range)
    numbers: tuple[Any, ...] = tuple(calls) if isinstance(calls, Sequence) and several else (calls,)
    if not all(type(one) is int for one in numbers):
        raise UsageError("calls= is neither how many to keep, nor their numbers, nor 'all'")
    if min(numbers, default=0) < 1:
        raise UsageError(f"calls={calls} keeps none: give how many, or their numbers from 1")
    return numbers if several else numbers[0]
