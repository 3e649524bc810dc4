"""The heads of a model as data: a row a head, tab-separated, or one JSON document."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from attnviz.core.measures import EFFECT, HeadReport, HeadRow, Role, mass_note
from attnviz.renderers.data.maps import report_json, tsv


def measures_tsv(report: HeadReport) -> str:
    """A line a head; each measure stands beside what uniform attention gives.

    A field is empty where a measure says nothing of a head.
    """
    names = [meaning.name for meaning in report.measures]
    header = ["stream", "layer", "head", "role", "role_share"]
    for name in names:
        header += [name, *(f"{name}_{what}" for what in _beside(name))]
    header += ["rests_on", "rests_share"]
    return tsv([header, *(_fields(row, names) for row in report.rows)])


def measures_json(report: HeadReport) -> str:
    """{"schema", "caption", "texts", "measures": [{"name", "unit", "low", …}], "heads": […], …}."""
    return report_json(
        "heads",
        caption=report.caption,
        texts=report.texts,
        sinks=report.sinks,
        note=mass_note(report.measures),
        measures=[asdict(meaning) for meaning in report.measures],
        heads=[_document(row) for row in report.rows],
        provenance=asdict(report.provenance),
    )


def plain(value: float) -> str:
    """The shortest spelling of six digits; empty where there is no number."""
    return "" if math.isnan(value) else f"{value:.6g}"


def _fields(row: HeadRow, names: list[str]) -> list[str]:
    fields = [row.stream, row.layer, row.head, *_role(row.roles[0] if row.roles else None)]
    for name in names:
        beside = [row.uniform.get(name, math.nan)]
        if name == EFFECT:
            beside = [*row.intervals.get(name, (math.nan, math.nan))]
        fields += map(plain, (row.values.get(name, math.nan), *beside))
    fields += _role(row.clearest("rests"))
    return fields


def _beside(name: str) -> tuple[str, ...]:
    """What stands beside a measure: what uniform attention gives, or the mean's interval."""
    return ("low", "high") if name == EFFECT else ("uniform",)


def _role(role: Role | None) -> tuple[str, str]:
    return (role.name, plain(role.share)) if role else ("", "")


def _document(row: HeadRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("stream", "layer", "head")} | {
        "roles": [asdict(role) for role in row.roles],
        "values": row.values,
        "uniform": row.uniform,
        "intervals": row.intervals,
    }
