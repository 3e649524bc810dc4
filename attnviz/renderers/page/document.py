"""Markup, styles, scripts and data put together into one file that asks nobody for anything.

The scripts are ECMAScript modules. Joined into one in the order below, each becomes a function that
answers what it exports, so that its other names stay its own. Their types are written in comments;
`npx -p typescript tsc -p attnviz/renderers/page/scripts` checks them, and nothing needs it to run.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from attnviz.core.attention_map import (
    LINK_LISTS,
    Attention,
    AttentionMap,
    Measured,
    Projections,
    Provenance,
    Token,
)
from attnviz.core.errors import InputError
from attnviz.core.measures import HeadMeasure, mass_note
from attnviz.core.sinks import sink_place
from attnviz.renderers.colors import scale_of
from attnviz.renderers.page.data import (
    FINE_LEVELS,
    Patches,
    deflated,
    dense,
    encode,
    gap,
    head_colors,
    schemes,
    within,
)
from attnviz.renderers.page.plain import hashed
from attnviz.renderers.printable import printable

STYLES = ("layout", "controls", "views", "live")
SCRIPTS = (
    *("numbers", "decode", "model", "state", "colors", "caption", "shown", "labels", "surface"),
    *("svg", "readout", "thumbnail", "off", "overview", "grid_geometry", "grid_painting"),
    *("heatmap", "lines_painting", "lines", "text", "query_key", "image", "table", "controls"),
    *("save", "keyboard", "pane", "source", "picture", "sentence", "tour", "live", "main"),
)
LIVE_SCRIPTS = (
    *("unicode", "tokenize", "network", "backward", "pocket", "measures", "maps", "worker"),
)
"""The engine, which runs in a worker beside the page."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of page: its template, and the styles and scripts put into it.

    Attributes:
        reaches: what it may reach beside itself, for its policy.
        instead: modules that it has in place of others.
    """

    template: str = "page.html"
    styles: tuple[str, ...] = STYLES
    scripts: tuple[str, ...] = SCRIPTS
    reaches: str = ""
    instead: Mapping[str, str] = field(default_factory=dict)


KINDS = {
    "": Kind(),  # of a finished run
    "live": Kind(reaches="; worker-src blob:"),
    # Only a page that is served knows how to ask a server.
    "serve": Kind(reaches="; connect-src 'self'", instead={"source": "served"}),
    "steps": Kind("steps.html", ("layout", "steps"), ("surface", "steps")),
    "atlas": Kind(
        "atlas.html",
        ("layout", "controls", "atlas"),
        ("numbers", "surface", "atlas_scatter", "atlas_head", "atlas"),
    ),
}
_IMPORT = re.compile(r"^import (\{[^}]*\}) from \"\./(\w+)\.js\";$", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.MULTILINE)
# "</script" would end the data early and "<!--" begin something worse; JSON can spell both.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def assemble(document: Mapping[str, Any], blobs: Mapping[str, str], kind: str = "") -> str:
    """The page as one HTML file, of a kind in `KINDS`.

    What it shows comes from the blobs of a finished run; from a model in a worker of its own
    ("live"), whose script and weights are the blobs; or from the server that it came from
    ("serve").
    """
    template, style, script, policy = _code(kind)
    data = "".join(
        f'<script type="text/plain" id="{name}">{text}</script>\n' for name, text in blobs.items()
    )
    return template.substitute(
        source=kind,
        title=html.escape(document["title"]),
        policy=policy,
        style=style,
        document=as_json(document),
        data=data,
        script=script,
    )


def live_page(title: str, packed: bytes) -> str:
    """The page with the shipped model inside, which answers in the browser that opens it.

    `packed` is what the engine in `live/` reads its weights and its tokenizer from.
    """
    blobs = {"worker": as_json(live_worker()), "packed": dense(packed)}
    return assemble(answering(title, ("raw", "rollout", "effect")), blobs, "live")


def live_worker() -> str:
    """The engine's script, for a worker.

    A worker's messages wait for its script only, not for what that awaits: one function a module is
    done before the first of them.
    """
    modules = {name: _read(f"live/{name}.js") for name in LIVE_SCRIPTS}
    return f"(async () => {{\n{joined(modules)}\n}})();"


def answering(title: str, lenses: Sequence[str], models: Sequence[str] = ()) -> dict[str, Any]:
    """The document of a page whose maps come as answers: what no answer changes."""
    empty: dict[str, Any] = {name: [] for name in ("texts", "notes", "provenance", "maps")}
    named = {"title": printable(title), "id": "0", "command": ""}
    colors = {"schemes": schemes(), "head_colors": head_colors()}
    return {**named, **empty, **colors, "lenses": list(lenses), "models": list(models)}


def framed(page: str, height: int = 680) -> str:
    """The page in a frame of its own, as a notebook's cell or another page can hold it.

    The frame may run its scripts and save files, but reaches nothing outside itself.
    """
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-downloads" '
        f'title="attention" width="100%" height="{height}" '
        'style="border:0;border-radius:8px;color-scheme:normal"></iframe>'
    )


def as_json(value: Any) -> str:
    """JSON that neither ends a script element nor breaks a line of script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: _UNSAFE[match[0]], text)


def joined(modules: Mapping[str, str]) -> str:
    """Modules as one script: a function each, called in this order with what came before."""
    parts = ["const modules = {};"]
    for name, source in modules.items():
        exported = ", ".join(_EXPORT.findall(source))
        body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = modules.\2;", source))
        parts.append(
            f"modules.{name} = await (async () => {{\n{body}return {{ {exported} }};\n}})();"
        )
    return "\n".join(parts)


@cache
def _code(name: str) -> tuple[Template, str, str, str]:
    kind = KINDS[name]
    style = "\n".join(_read(f"styles/{one}.css") for one in kind.styles)
    own = {one: kind.instead.get(one, one) for one in kind.scripts}
    script = joined({one: _read(f"scripts/{file}.js") for one, file in own.items()})
    policy = (
        f"default-src 'none'; script-src '{hashed(script)}'; style-src '{hashed(style)}'; "
        f"img-src data: blob:; base-uri 'none'; form-action 'none'{kind.reaches}"
    )
    return Template(_read(kind.template)), style, script, policy


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


Blobs = dict[str, str]
Words = Sequence[int | None]
_LONGEST_TEXT = 200
_FEW = 400_000
"""So few weights may take two bytes each: a megabyte at most."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What belongs to maps without being in them, by the number of the map."""

    measures: Mapping[int, Sequence[HeadMeasure]]
    words: Mapping[int, tuple[Words, Words]]
    projections: Mapping[int, Projections]
    patches: Mapping[int, Patches]


def page_document(
    attention: Attention, extras: Extras, title: str, command: str, most_weights: int
) -> tuple[dict[str, Any], Blobs]:
    """The document and, under the names that it refers to, packed numbers in base64."""
    blobs: Blobs = {}
    total = sum(item.weights.size for item in attention.maps)
    maps = []
    for number, item in enumerate(attention.maps):
        room = item.weights.size * most_weights // total if total > most_weights else total
        maps.append(_map(attention, number, extras, room, fine=total <= _FEW, blobs=blobs))
    provenance = attention.provenance
    told = filter(None, dict.fromkeys(map(mass_note, extras.measures.values())))
    # The target first, whose tokens attend.
    texts = (attention.text, attention.target, attention.source)
    document = {
        "title": printable(title or provenance.model),
        "id": printable(attention.id),
        "texts": [_beginning(text) for text in texts if text and text.strip()],
        "command": printable(command),
        "notes": [printable(note) for note in (*provenance.notes, *told)],
        "provenance": [[name, printable(value)] for name, value in facts(provenance)],
        "schemes": schemes(),
        "head_colors": head_colors(),
        "maps": maps,
    }
    return document, blobs


def _beginning(text: str) -> str:
    line = " ".join(text[: 2 * _LONGEST_TEXT].split())
    whole = len(line) <= _LONGEST_TEXT and len(text) <= 2 * _LONGEST_TEXT
    return printable(line if whole else line[:_LONGEST_TEXT].rstrip() + "…")


def _map(
    attention: Attention, number: int, extras: Extras, room: int, *, fine: bool, blobs: Blobs
) -> dict[str, Any]:
    item, name = attention.maps[number], f"m{number}"
    shown = within(item, room)
    codes = encode(shown.weights, item.values == "signed", fine)
    blobs |= {f"{name}-{layer}": text for layer, text in enumerate(codes.layers)}
    focus = attention.focus.get(item.stream)
    words = extras.words.get(number, ((), ()))
    stream, lens = _called(attention, item)
    return {
        "blob": name,
        "stream": printable(stream),
        "lens": printable(lens),
        "layers": [printable(layer) for layer in item.layers],
        "heads": [printable(head) for head in item.heads],
        "values": item.values,
        "unit": printable(item.unit),
        "limits": scale_of(shown),
        "scale": codes.scale,
        "levels": codes.levels,
        "queries": _axis(attention, item.query_side, shown.query_tokens, words[0], shown.blocks[0]),
        "keys": _axis(attention, item.key_side, shown.key_tokens, words[1], shown.blocks[1]),
        "sink": sink_place(shown),
        "focus": [focus.layer, focus.head, printable(focus.why)] if focus else None,
        "measures": [_measure(measure) for measure in extras.measures.get(number, ())],
        "links": _links(shown) if shown.is_pooled else None,
        "effects": _effects(attention, shown),
        "projections": _projections(shown, extras.projections.get(number), name, blobs),
        "patches": _patches(shown, extras.patches.get(number)),
    }


def _effects(attention: Attention, item: AttentionMap) -> list[dict[str, Any]]:
    """Lists of links with their effects: of each the ends, the place if it is there, numbers."""
    rows, columns = len(item.query_tokens), len(item.key_tokens)

    def told(one: Measured) -> dict[str, Any]:
        link = one.link
        inside = link.query_position < rows and link.key_position < columns and not item.is_pooled
        there = inside and link.layer in item.layers and link.head in item.heads
        head = (item.layers.index(link.layer), item.heads.index(link.head)) if there else None
        return {
            "ends": [printable(link.query), printable(link.key)],
            "where": f"layer {printable(link.layer)} head {printable(link.head)}",
            "place": [*head, link.query_position, link.key_position] if head else None,
            "numbers": [link.weight, one.estimated, one.measured],
        }

    lists = ((title, getattr(attention, name)) for name, title in LINK_LISTS.items())
    found = (
        {"title": title, "links": [told(one) for one in links if one.stream == item.stream][:10]}
        for title, links in lists
    )
    return [one for one in found if one["links"]]


def _called(attention: Attention, item: AttentionMap) -> tuple[str, str]:
    stream, _, lens = item.stream.partition(" · ")
    if attention.lens_name == "all":
        return "attention", item.stream
    if [other.stream for other in attention.maps].count(item.stream) > 1:
        # Stages of one model whose sizes differ are maps of their own.
        stream += f", layers {item.layers[0]} to {item.layers[-1]}"
    return stream, lens


def _axis(
    attention: Attention, side: str, tokens: Sequence[Token], words: Words, length: int
) -> dict[str, Any]:
    text = {"source": attention.source, "target": attention.target}.get(side, attention.text)
    runs = _runs(words) if length == 1 else []
    if runs and len(runs) != len(tokens):
        raise InputError(f"{len(runs)} word numbers for the {len(tokens)} tokens of side '{side}'")
    return {
        "side": printable(side),
        "block": length,
        # Words that are all of one token are no choice.
        "words": runs if runs and runs[-1] + 1 < len(runs) else None,
        "tokens": [
            _token(token, gap(tokens[place - 1] if place else None, token, text))
            for place, token in enumerate(tokens)
        ],
    }


def _runs(words: Words) -> list[int]:
    runs: list[int] = []
    for place, word in enumerate(words):
        joined = place > 0 and word is not None and word == words[place - 1]
        runs.append(runs[-1] + (not joined) if runs else 0)
    return runs


def _token(token: Token, gap_before: str) -> dict[str, Any]:
    shown = printable(token.text)
    document: dict[str, Any] = {"text": shown, "gap": gap_before}
    if shown != token.text:
        document["raw"] = token.text.encode("utf-8", "backslashreplace").decode()
    if token.special:
        document["special"] = True
    if token.label:
        document["label"] = printable(token.label)
    return document


def _measure(measure: HeadMeasure) -> dict[str, Any]:
    values = [
        [round(value, 4) if np.isfinite(value) else None for value in layer]
        for layer in measure.values.tolist()
    ]
    told = {name: getattr(measure, name) for name in ("name", "unit", "low", "high")}
    return {**told, "values": values}


def _links(item: AttentionMap) -> list[list[list[list[Any]]]]:
    """For each layer and head, [query position, its token, key position, its token, weight]."""
    found: dict[tuple[str, str], list[list[Any]]] = {}
    for link in item.links:
        cell = [link.query_position, printable(link.query), link.key_position, printable(link.key)]
        found.setdefault((link.layer, link.head), []).append([*cell, round(link.weight, 4)])
    return [[found.get((layer, head), []) for head in item.heads] for layer in item.layers]


def _patches(item: AttentionMap, patches: Patches | None) -> dict[str, Any]:
    if patches is None or item.is_pooled:
        return {}
    found = {"keys": patches.as_json(item.key_tokens)}
    if item.query_side == item.key_side and len(item.query_tokens) == len(item.key_tokens):
        found["queries"] = {**found["keys"], "image": ""}
    return found


def _projections(
    item: AttentionMap, kept: Projections | None, name: str, blobs: Blobs
) -> dict[str, Any] | None:
    if kept is None or item.is_pooled:
        return None
    query, key = (np.asarray(array, np.float32) for array in (kept.query, kept.key))
    layers, heads, queries, keys = item.weights.shape
    size = query.shape[-1]
    if query.shape != (layers, heads, queries, size) or key.shape != (layers, heads, keys, size):
        raise InputError(
            f"queries {query.shape} and keys {key.shape} do not fit the map of stream "
            f"'{item.stream}', which is {item.weights.shape}"
        )
    scales = []
    for side, array in (("q", query), ("k", key)):
        scale = float(np.abs(array).max()) or 1.0
        scales.append(scale)
        whole = np.rint(array / scale * FINE_LEVELS).astype("<i2")
        blobs |= {f"{name}{side}-{number}": deflated(x.tobytes()) for number, x in enumerate(whole)}
    own = dict(zip(("query_scale", "key_scale"), scales, strict=True))
    return {"size": size, "scale": kept.scale, **own, "besides": printable(kept.besides)}


def facts(provenance: Provenance) -> list[tuple[str, str]]:
    """Where a result comes from, by name, as a page says it."""

    def spelt(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{name} {spelt(one)}" for name, one in value.items())
        return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)

    told = [
        ("source", provenance.source),
        ("model", provenance.model),
        ("trained", "unknown" if provenance.trained is None else spelt(provenance.trained)),
        ("device", provenance.device),
        ("precision", provenance.dtype),
        *((str(name), spelt(value)) for name, value in provenance.settings.items()),
    ]
    if provenance.steps:
        told.append(("steps", ", ".join(provenance.steps)))
    told += [(name, str(version)) for name, version in provenance.versions.items()]
    return [(printable(name), value) for name, value in told]
