"""The function of Python: attnviz.cache."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.api.questions import Names, read_written
from attnviz.core.errors import UsageError
from attnviz.features.cache.request import CacheRequest, read_kinds, report_cache
from attnviz.runs.pipeline import Result


@arguments.public
def cache(
    text: str | arguments.Texts | Mapping[str, arguments.Texts] | Result | None = None,
    target: str | None = None,
    *,
    keep: Names = None,
    input: Names = None,  # noqa: A002 - as the option is called
    prompt: str | int | float | None = None,
    per_head: bool = False,
    seed: arguments.NotNegative = 0,
    **options: Unpack[arguments.CacheOptions],
) -> Findings:
    """What it costs if a cache holds fewer keys.

    Args:
        text: a text, the source of a pair, a picture's file, a list of texts or pairs, lists by the
            kind of their texts, or a result of `attend`.
        target: the target of a pair, or what a picture is asked.
        keep: what stays: "h2o:0.2" is 20 % of the keys, "h2o:0.1,0.2" each of these,
            "sinks:4+recent:64" both; a list compares several. A model that selects keys itself
            needs none.
        input: a file of texts instead, or several, a kind of text each.
        prompt: tokens (an int), or their share (a float), that are read with all keys first; None:
            half of a text, one token of a pair's target.
        per_head: also measure each rule in each head alone.
        seed: seed of the rule "random".
        options: those of `attnviz cache`, by name.

    Returns:
        A `CacheReport`; the pictures "plot" and, of one text, "heatmap".
    """
    rules, names = arguments.name_parts("keep", keep, ""), arguments.name_parts("input", input, "")
    start = None if prompt is None else str(prompt)
    if isinstance(text, str) and target is not None and not names:
        kinds, kind, how = read_kinds(text, target, [], arguments.read_options(options))
    else:
        groups: list[tuple[str, Any, str | None]] = [("", text, None)]
        if names:
            groups = [(Path(name).stem, text, name) for name in names]
        elif isinstance(text, Mapping):
            groups = [(name, own, None) for name, own in text.items()]
        read = [read_written("cache", own, target, file, options) for _, own, file in groups]
        if not read:
            raise UsageError("cache needs texts: there is no kind of them")
        how, _, kind = read[0]
        kinds = [(one[0], texts) for one, (_, texts, _) in zip(groups, read, strict=True)]
    request = CacheRequest(rules, start, how.choice.stream, per_head, seed)
    with collect("cache", "cache", how) as report:
        report_cache(request, kinds, kind, how, report)
    return report.findings
