"""Pages as single files: template, styles, scripts and data in one, without any request.

The scripts are ECMAScript modules, joined into one script in the order below. Each becomes a
function that returns its exports, so that its other names stay private. Types stand in comments;
`npx -p typescript tsc -p attnviz/renderers/page/scripts` checks them, and no build step needs it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from attnviz.core.attention_map import (
    BETWEEN_SIDES,
    LINK_LISTS,
    Attention,
    AttentionMap,
    MeasuredLink,
    Projections,
    Provenance,
    Token,
)
from attnviz.core.errors import InputError
from attnviz.core.measures import HeadMeasure, mass_note
from attnviz.core.records import dataclass, field
from attnviz.core.tokens import is_mark, sink_place
from attnviz.renderers.colors import scale_of
from attnviz.renderers.page import data
from attnviz.renderers.printable import printable, without_folders

STYLES = ("layout", "controls", "views", "live", "card", "modes")
SCRIPTS = (
    *("surface", "look", "broken", "numbers", "rows", "decode", "model", "off", "address", "state"),
    "colors",
    *(
        "scale",
        "shown",
        "caption",
        "labels",
        "svg",
        "readout",
        "gains",
        "says",
        "thumbnail",
        "controls",
        "overview",
    ),
    *("grid_geometry", "grid_painting", "heatmap", "lines_painting", "lines", "text", "query_key"),
    *("image", "table"),
    *("save", "figure", "saving", "keyboard", "pane", "source", "picture", "difference"),
    *("sentence", "tour", "unfold", "why", "word", "atlas_head", "card", "effects", "switching"),
    *("live", "history", "main"),
)
SHARED = ("rows", "gains", "scale")
"""Formulas of the page that the engine of a live page has too."""
LIVE_SCRIPTS = (
    *(*SHARED, "unicode", "tokenize", "network", "backward", "pocket", "measures", "maps", "why"),
    *("explain", "worker"),
)
"""The engine of a live page, which runs in a worker."""
LIVE_PRECISION = "The model in this page is packed: weights are within 0.015 of the command line's."


@dataclass(frozen=True, slots=True)
class PageKind:
    """A kind of page: the template of its body, its styles and scripts."""

    template: str = "page.html"
    styles: tuple[str, ...] = STYLES
    scripts: tuple[str, ...] = SCRIPTS
    sources: str = ""  # that its content security policy allows beside itself
    substitutes: Mapping[str, str] = field(default_factory=dict)  # by the script they replace


PAGE_KINDS = {
    "": PageKind(),  # of a finished run
    "why": PageKind(),  # of a finished run, with reports on links, or with what makes their weights
    "live": PageKind(sources="; worker-src blob:"),
    # Only a served page contains code that sends requests.
    "serve": PageKind(sources="; connect-src 'self'", substitutes={"source": "served"}),
    "steps": PageKind("steps.html", ("layout", "steps", "modes"), ("surface", "steps")),
    "atlas": PageKind(
        "atlas.html",
        ("layout", "controls", "atlas", "card", "modes"),
        (
            *("surface", "broken", "numbers", "rows", "decode", "address", "colors", "svg"),
            *("figure", "saving", "atlas_scatter", "atlas_head", "atlas"),
        ),
    ),
}
_IMPORT = re.compile(r"^import (\{[^}]*\}) from \"\.{1,2}/(?:scripts/)?(\w+)\.js\";$", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*\n", re.MULTILINE)
"""Comments on lines of their own, mostly types: a third of all script, left out of pages."""
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.MULTILINE)
# "</script" would end the data early, and "<!--" would hide its end; JSON can escape both.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def assemble(document: Mapping[str, Any], blobs: Mapping[str, str], kind: str = "") -> str:
    """The page as one HTML file, of a kind in `PAGE_KINDS`.

    The blobs hold the numbers of a finished run or, for "live", the engine and the model's weights.
    A page of kind "serve" asks its server instead.
    """
    if not kind and any(item["projections"] for item in document["maps"]):
        kind = "why"  # a link unfolds
    template, style, script, policy = _code(kind)
    tags = {
        name: f'<script type="text/plain" id="{name}">{text}</script>\n'
        for name, text in blobs.items()
    }
    # A finished run is drawn once what it opens on is there; the rest comes behind the script.
    late = tags.keys() - set(map(_first_seen, document["maps"])) if kind in ("", "why") else ()
    return template.substitute(
        source=kind,
        title=html.escape(document["title"]),
        policy=policy,
        style=style,
        document=script_json(document),
        data="".join(tag for name, tag in tags.items() if name not in late),
        moment=" async" if late else "",
        script=script,
        rest="".join(f"\n{tag[:-1]}" for name, tag in tags.items() if name in late),
    )


def _first_seen(item: Mapping[str, Any]) -> str:
    """The name of the weights that a map opens on: of the layer in focus, or of the last."""
    layers, (layer, *_) = item["layers"], item["focus"] or [None]
    return f"{item['blob']}-{layers.index(layer) if layer in layers else len(layers) - 1}"


def live_page(title: str, engine: bytes, atlas: Mapping[str, Any]) -> str:
    """The page with the shipped model inside, which runs in the reader's browser.

    `engine` holds the weights and the tokenizer in the form that the engine in `live/` reads,
    `atlas` what each head does in other texts.
    """
    blobs = {"worker": script_json(live_worker()), "packed": data.pack_base85(engine)}
    blobs["atlas"] = data.pack_base85(script_json(atlas).encode())
    document = live_document(title, ("raw", "rollout", "effect"))
    return assemble({**document, "precision": LIVE_PRECISION}, blobs, "live")


def live_worker() -> str:
    """The engine's script, for a worker."""
    modules = {
        name: read_part(f"{'scripts' if name in SHARED else 'live'}/{name}.js")
        for name in LIVE_SCRIPTS
    }
    return f"(async () => {{\n{join_modules(modules)}\n}})();"


def plain_page(title: str, body: str, style: str = "") -> str:
    """A page of words, tables and pictures without scripts; `body` is escaped markup."""
    style = read_part("styles/plain.css") + style
    return Template(read_part("plain.html")).substitute(
        title=html.escape(title), body=body, style=style, hash=policy_hash(style)
    )


TABLE_FRAME = '<div class="wide" tabindex="0" role="region" aria-label="Table">'
"""Begins what holds a table that may be wider than the page; keys scroll it."""


def policy_hash(source: str) -> str:
    """The hash by which a content security policy names a style or a script."""
    digest = hashlib.sha256(source.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def live_document(
    title: str,
    lenses: Sequence[str],
    models: Sequence[str] = (),
    pictures: Mapping[str, bytes] | None = None,
) -> dict[str, Any]:
    """The document of a live page, without maps; `pictures`: a first picture for some models."""
    samples = {name: base64.b64encode(file).decode() for name, file in (pictures or {}).items()}
    empty: dict[str, Any] = {name: [] for name in ("texts", "notes", "provenance", "maps")}
    head = {"title": printable(title), "id": "0", "command": ""}
    colors = {"schemes": data.schemes(), "head_colors": data.head_colors()}
    choices = {"lenses": list(lenses), "models": list(models), "pictures": samples}
    return {**head, **empty, **colors, **choices}


def iframe(page: str, height: int = 680) -> str:
    """The page in an iframe that runs scripts and saves files, apart from the page around it."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-downloads" '
        f'title="attention" width="100%" height="{height}" '
        'style="border:0;border-radius:8px;color-scheme:normal"></iframe>'
    )


def script_json(value: Any) -> str:
    """JSON that is safe within a script element and within a line of script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: _UNSAFE[match[0]], text)


def join_modules(modules: Mapping[str, str]) -> str:
    """Modules as one script: one function each, called in this order."""
    parts = ["const modules = {};"]
    for name, source in modules.items():
        exports = ", ".join(_EXPORT.findall(source))
        body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = modules.\2;", _COMMENT.sub("", source)))
        parts.append(
            f"modules.{name} = await (async () => {{\n{body}return {{ {exports} }};\n}})();"
        )
    return "\n".join(parts)


@cache
def _code(name: str) -> tuple[Template, str, str, str]:
    kind = PAGE_KINDS[name]
    style = "\n".join(read_part(f"styles/{one}.css") for one in kind.styles)
    scripts = {one: kind.substitutes.get(one, one) for one in kind.scripts}
    script = join_modules({one: read_part(f"scripts/{file}.js") for one, file in scripts.items()})
    policy = (
        f"default-src 'none'; script-src '{policy_hash(script)}'; "
        f"style-src '{policy_hash(style)}'; img-src data: blob:; base-uri 'none'; "
        f"form-action 'none'{kind.sources}"
    )
    return Template(read_part("head.html") + read_part(kind.template)), style, script, policy


def read_part(name: str) -> str:
    """A template, script or style of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


Blobs = dict[str, str]
Words = Sequence[int | None]
MOST_WEIGHTS = 40_000_000
"""With more weights than these (12 × 12 heads at 512 tokens), tokens are pooled into blocks."""
_LONGEST_TEXT = 200
_FEW_FACTS = 6
_FEW, _MANY = 400_000, 12_000_000
"""Up to so many weights take two bytes each: a megabyte at most; more than so many, few bits."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What a page shows beside its maps, by the number of the map."""

    measures: Mapping[int, Sequence[HeadMeasure]]
    words: Mapping[int, tuple[Words, Words]]
    projections: Mapping[int, Projections]
    patches: Mapping[int, data.Patches]


def page_parts(
    attention: Attention,
    *,
    title: str = "",
    command: str = "",
    measures: Mapping[int, Sequence[HeadMeasure]] | None = None,
    words: Mapping[int, tuple[Words, Words]] | None = None,
    projections: Mapping[int, Projections] | None = None,
    patches: Mapping[int, data.Patches] | None = None,
    most_weights: int = MOST_WEIGHTS,
) -> tuple[dict[str, Any], Blobs]:
    """A page's document, and packed numbers in base64 under the names that the document uses.

    Weights are rounded by at most 0.001, few weights by at most 0.00004. Above `most_weights` in
    all, tokens are pooled into blocks, and each head's strongest links are kept exactly. The title
    is by default the model; `command` makes the page again. By the number of a map come measures to
    sort its heads by; word numbers of its queries and its keys, None outside words; the queries and
    keys behind its scores; and the picture whose patches are its keys.

    Raises:
        InputError: words, projections or patches that do not fit their map.
    """
    beside = Extras(measures or {}, words or {}, projections or {}, patches or {})
    blobs: Blobs = {}
    total = sum(item.weights.size for item in attention.maps)
    maps = []
    for number, item in enumerate(attention.maps):
        room = item.weights.size * most_weights // total if total > most_weights else total
        maps.append(_map(attention, number, beside, room, total, blobs))
    provenance = attention.provenance
    masses = filter(None, dict.fromkeys(map(mass_note, beside.measures.values())))
    # The target comes first, since its tokens attend.
    texts = (attention.text, attention.target, attention.source)
    document = {
        "title": printable(title or provenance.model),
        "id": printable(attention.id),
        "texts": [_beginning(text) for text in texts if text and text.strip()],
        "command": printable(command),
        "notes": [printable(without_folders(one)) for one in (*provenance.notes, *masses)],
        "provenance": [[name, printable(value)] for name, value in facts(provenance)],
        "schemes": data.schemes(),
        "head_colors": data.head_colors(),
        "maps": maps,
    }
    return document, blobs


def _beginning(text: str) -> str:
    line = " ".join(text[: 2 * _LONGEST_TEXT].split())
    whole = len(line) <= _LONGEST_TEXT and len(text) <= 2 * _LONGEST_TEXT
    return printable(line if whole else line[:_LONGEST_TEXT].rstrip() + "…")


def _map(
    attention: Attention, number: int, extras: Extras, room: int, total: int, blobs: Blobs
) -> dict[str, Any]:
    item, name = attention.maps[number], f"m{number}"
    page_map = data.pool_to_fit(item, room)
    signed, many = item.values == "signed", min(total, MOST_WEIGHTS) > _MANY
    codes = data.encode_weights(page_map.weights, signed, total <= _FEW, many=many)
    blobs |= {f"{name}-{layer}": text for layer, text in enumerate(codes.layers)}
    focus = attention.focus.get(item.stream)
    words = extras.words.get(number, ((), ()))
    stream, lens = _map_names(attention, item)
    return {
        "blob": name,
        "stream": printable(stream),
        "lens": printable(lens),
        "layers": [printable(layer) for layer in item.layers],
        "heads": [printable(head) for head in item.heads],
        "values": item.values,
        "unit": printable(item.unit),
        "limits": scale_of(page_map),
        "scale": codes.scale,
        "levels": codes.levels,
        **({} if codes.power == 2 else {"power": codes.power}),
        "queries": _axis(
            attention, item.query_side, page_map.query_tokens, words[0], page_map.blocks[0]
        ),
        "keys": _axis(attention, item.key_side, page_map.key_tokens, words[1], page_map.blocks[1]),
        "sink": sink_place(page_map),
        "focus": [focus.layer, focus.head, printable(focus.why)] if focus else None,
        "measures": [_measure(measure) for measure in extras.measures.get(number, ())],
        "links": _links(page_map) if page_map.is_pooled else None,
        "effects": _effects(attention, page_map),
        "projections": _projections(page_map, extras.projections.get(number), name, blobs),
        "patches": _patches(page_map, extras.patches.get(number)),
        **({"groups": groups} if (groups := _groups(attention, item)) else {}),
    }


def _groups(attention: Attention, item: AttentionMap) -> list[int] | None:
    """By layer, how many neighbouring heads share keys and values; None: none, or some are gone."""
    sizes = attention.group_sizes.get(item.stream, {})
    own = [sizes.get(layer, 1) for layer in item.layers]
    whole = list(item.heads) == [str(head) for head in range(len(item.heads))]
    return own if whole and max(own) > 1 else None


def _effects(attention: Attention, item: AttentionMap) -> list[dict[str, Any]]:
    """Lists of links with their effects; a link has a place only if the page shows its cell."""
    rows, columns = len(item.query_tokens), len(item.key_tokens)

    def document(one: MeasuredLink) -> dict[str, Any]:
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

    lists = []
    for name, title in LINK_LISTS.items():
        own = [one for one in getattr(attention, name) if one.stream == item.stream][:10]
        if own:
            lists.append({"title": title, "links": [document(one) for one in own]})
    return lists


def _map_names(attention: Attention, item: AttentionMap) -> tuple[str, str]:
    stream, _, lens = item.stream.partition(" · ")
    if attention.lens_name == "all":
        return "attention", item.stream
    if [other.stream for other in attention.maps].count(item.stream) > 1:
        # Stages of different sizes (Swin) are separate maps with the same stream.
        stream += f", layers {item.layers[0]} to {item.layers[-1]}"
    return stream, lens


def _axis(
    attention: Attention, side: str, tokens: Sequence[Token], words: Words, length: int
) -> dict[str, Any]:
    text = {"source": attention.source, "target": attention.target}.get(side, attention.text)
    text = attention.text_of(side) if BETWEEN_SIDES in side else text
    runs = _runs(words) if length == 1 else []
    if runs and len(runs) != len(tokens):
        raise InputError(f"{len(runs)} word numbers for the {len(tokens)} tokens of side '{side}'")
    return {
        "side": printable(side),
        "block": length,
        # Where each word is one token, a choice between words and tokens would change nothing.
        "words": runs if runs and runs[-1] + 1 < len(runs) else None,
        "tokens": [
            _token(token, data.gap(tokens[place - 1] if place else None, token, text))
            for place, token in enumerate(tokens)
        ],
    }


def _runs(words: Words) -> list[int]:
    runs: list[int] = []
    for place, word in enumerate(words):
        same_word = place > 0 and word is not None and word == words[place - 1]
        runs.append(0 if not runs else runs[-1] if same_word else runs[-1] + 1)
    return runs


def _token(token: Token, gap_before: str) -> dict[str, Any]:
    text = printable(token.text)
    document: dict[str, Any] = {"text": text, "gap": gap_before}
    if text != token.text:
        document["raw"] = token.text.encode("utf-8", "backslashreplace").decode()
    if is_mark(token):  # keys of other kinds stay where marks are left out
        document["special"] = True
    if token.label:
        document["label"] = printable(token.label)
    if token.kind != "token":
        document["kind"] = printable(token.kind)
    return document


def _measure(measure: HeadMeasure) -> dict[str, Any]:
    document = {name: getattr(measure, name) for name in ("name", "unit", "low", "high")}
    rows = measure.values.tolist()
    values = [[round(one, 4) if np.isfinite(one) else None for one in row] for row in rows]
    return {**document, "values": values}


def _links(item: AttentionMap) -> list[list[list[list[Any]]]]:
    """For each layer and head, [query position, its token, key position, its token, weight]."""
    by_head: dict[tuple[str, str], list[list[Any]]] = {}
    for link in item.links:
        cell = [link.query_position, printable(link.query), link.key_position, printable(link.key)]
        by_head.setdefault((link.layer, link.head), []).append([*cell, round(link.weight, 4)])
    return [[by_head.get((layer, head), []) for head in item.heads] for layer in item.layers]


def _patches(item: AttentionMap, patches: data.Patches | None) -> dict[str, Any]:
    if patches is None or item.is_pooled:
        return {}
    sides = {"keys": patches.as_json(item.key_tokens)}
    if item.query_side == item.key_side and len(item.query_tokens) == len(item.key_tokens):
        sides["queries"] = {**sides["keys"], "image": ""}
    return sides


def _projections(
    item: AttentionMap, projections: Projections | None, name: str, blobs: Blobs
) -> dict[str, Any] | None:
    if projections is None or item.is_pooled:
        return None
    query, key = (np.asarray(array, np.float32) for array in (projections.query, projections.key))
    layers, heads, queries, keys = item.weights.shape
    size = query.shape[-1]
    if query.shape != (layers, heads, queries, size) or key.shape != (layers, heads, keys, size):
        raise InputError(
            f"queries {query.shape} and keys {key.shape} do not fit the map of stream "
            f"'{item.stream}', which is {item.weights.shape}"
        )
    document: dict[str, Any] = {"size": size, "scale": projections.scale}
    more = {one: getattr(projections, one) for one in ("value", "writes", "effects")}
    for side, array in {"query": query, "key": key, **more}.items():
        if array is None:
            document[f"{side}_scale"] = None
            continue
        finite = np.isfinite(array)
        scale = document[f"{side}_scale"] = float(np.abs(array[finite]).max(initial=0)) or 1.0
        whole = np.rint(np.where(finite, array, 0) / scale * data.FINE_LEVELS).astype("<i2")
        for number, layer in enumerate(np.where(finite, whole, data.NO_VALUE).astype("<i2")):
            blobs[f"{name}{side[0]}-{number}"] = data.deflate(layer.tobytes())
    predictions = {row: printable(name) for row, name in projections.predicted.items()}
    return {**document, "besides": printable(projections.besides), "predicted": predictions}


def facts(provenance: Provenance) -> list[tuple[str, str]]:
    """Where a result comes from, as names and values."""

    def text_of(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{name} {text_of(one)}" for name, one in value.items())
        if isinstance(value, (list, tuple)):
            whole = len(value) > 2 and all(type(one) is int for one in value)
            if whole and [*value] == [*range(value[0], value[-1] + 1)]:
                return f"{value[0]} to {value[-1]}"
            more = f" … ({len(value)} in all)" if len(value) > _FEW_FACTS else ""
            between = "; " if any(isinstance(one, dict) for one in value) else ", "
            return between.join(text_of(one) for one in value[:_FEW_FACTS]) + more
        return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)

    values = {
        "source": provenance.source,
        "model": provenance.model,
        "trained": "unknown" if provenance.trained is None else text_of(provenance.trained),
        "device": provenance.device,
        "precision": provenance.dtype,
    }
    facts = [*values.items()]
    facts += ((str(name), text_of(value)) for name, value in provenance.settings.items())
    if provenance.steps:
        facts.append(("steps", ", ".join(provenance.steps)))
    facts += ((name, str(version)) for name, version in provenance.versions.items())
    return [(printable(name), without_folders(value)) for name, value in facts]
