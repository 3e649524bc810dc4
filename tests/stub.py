"""What an editor shows of the functions: their signatures from the one list of options.

`python -m tests.stub` writes `attnviz/__init__.pyi`; a test compares it with the options.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import attnviz
from attnviz.cli.functions import FUNCTIONS, described

STUB = Path(attnviz.__file__).with_suffix(".pyi")
HEAD = '''# Written by `python -m tests.stub` from the one list of options.
"""attnviz: see where a transformer looks, from the command line and from Python."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

'''


def stub() -> str:
    """The text of the stub."""
    lines, functions = [HEAD], []
    for name in attnviz.__all__:
        if name in (*FUNCTIONS, "attend", "attend_many"):
            functions.append(_function(name))
        else:
            home = f"attnviz.{attnviz._HOMES[name]}".removesuffix(
                f".{name}"
            )  # or it is that module
            lines.append(f"from {home} import {name} as {name}\n")
    lines.append("from attnviz.storage.texts import Text\n\n__version__: str\n__all__: list[str]\n")
    return "".join(lines) + "\n" + "\n".join(functions)


def _function(name: str) -> str:
    signature, told = described(name)
    shown = str(signature.replace(return_annotation=inspect.Signature.empty))
    shown = re.sub(
        # In Python 3.13 a path's module is called pathlib._local.
        r"\b(?:pathlib(?:\._local)?|typing|collections\.abc|attnviz(?:\.\w+)+)\.(?=[A-Z])",
        "",
        shown,
    )
    shown = re.sub(r"Optional\[(Literal\[[^]]*\])\]", r"\1 | None", shown)
    returns = signature.return_annotation
    answer = getattr(returns, "__name__", "") if not hasattr(returns, "__args__") else ""
    answer = answer or "Iterator[Result | AttnvizError]"
    parameters = shown[1:-1].replace("*, ", "*,\n    ")
    parameters = re.sub(r", (?=\w+: )", ",\n    ", parameters)
    text = textwrap.indent(told.replace("\\", "\\\\").rstrip(), "    ").strip()
    return f'def {name}(\n    {parameters},\n) -> {answer}:\n    """{text}\n    """\n'


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
