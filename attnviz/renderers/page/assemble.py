"""Markup, styles, scripts and data put together into one file that asks nobody for anything.

The scripts are ECMAScript modules. Joined into one in the order below, each becomes a function that
answers what it exports, so that its other names stay its own. Their types are written in comments;
`npx -p typescript tsc -p attnviz/renderers/page/scripts` checks them, and nothing needs it to run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

STYLES = ("layout", "controls", "views")
SCRIPTS = (
    "numbers",
    "decode",
    "model",
    "state",
    "colors",
    "shown",
    "labels",
    "surface",
    "svg",
    "readout",
    "thumbnail",
    "overview",
    "grid_geometry",
    "grid_painting",
    "heatmap",
    "lines_painting",
    "lines",
    "text",
    "query_key",
    "image",
    "table",
    "controls",
    "save",
    "keyboard",
    "caption",
    "main",
)
_IMPORT = re.compile(r"^import (\{[^}]*\}) from \"\./(\w+)\.js\";$", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.MULTILINE)
# "</script" would end the data early and "<!--" begin something worse; JSON can spell both.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def assemble(document: Mapping[str, Any], blobs: Mapping[str, str]) -> str:
    """The page as one HTML file.

    Args:
        document: what the scripts read as JSON.
        blobs: packed numbers in base64, by the name of the element that shall hold them.
    """
    style, script, policy = _code()
    data = "".join(
        f'<script type="text/plain" id="{name}">{text}</script>\n' for name, text in blobs.items()
    )
    return _template().substitute(
        title=html.escape(document["title"]),
        policy=policy,
        style=style,
        document=as_json(document),
        data=data,
        script=script,
    )


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
    """Modules as one script: a function each, called in this order with what came before.

    Args:
        modules: source by name; one may import only from those before it.
    """
    parts = ["const modules = {};"]
    for name, source in modules.items():
        exported = ", ".join(_EXPORT.findall(source))
        body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = modules.\2;", source))
        parts.append(
            f"modules.{name} = await (async () => {{\n{body}return {{ {exported} }};\n}})();"
        )
    return "\n".join(parts)


@cache
def _template() -> Template:
    return Template(_read("page.html"))


@cache
def _code() -> tuple[str, str, str]:
    """Styles, script, and the policy that allows these two and nothing else."""
    style = "\n".join(_read(f"styles/{name}.css") for name in STYLES)
    script = joined({name: _read(f"scripts/{name}.js") for name in SCRIPTS})
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return style, script, policy


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
