"""What no code of the package uses: `python tests/dead_code.py` lists it and ends with status 1.

Tests do not count as a use. What a table names as "module:attribute" does, and so do the names
below, which are called by what is not code of this package.
"""

import ast
import re
import sys
from fnmatch import fnmatchcase as fits
from pathlib import Path

from vulture import Vulture

TREES = ("attnviz", "training")

CALLED_FROM_OUTSIDE = (
    # the interpreter
    "__dir__",
    "__class__",
    "__path__",
    # the process that renders a chat template, by the code it is given
    "serve_template",
    # notebooks
    "_repr_*_",
    # the table of lessons, by the name of each
    "*_lesson",
    # the standard library, of a dataclass from which another inherits
    "frozen",
    # typer, of its groups and of functions whose signature it reads
    "list_commands",
    "resolve_command",
    "__signature__",
    # Python callers, of the package and of results
    "to_json",
    "to_pandas",
    "to_rows",
    # textual, of the app and the widget of `browse`
    "compose",
    "on_click",
    "on_input_*",
    "on_key",
    "on_m*",
    "on_paste",
    "on_resize",
    "render_line",
    "ALLOW_SELECT",
    "BINDINGS",
    "CSS",
    "ENABLE_COMMAND_PALETTE",
    "action_*",
    "watch_lines",
    # transformers' Trainer and Lightning, of callbacks
    "on_train_*",
    "on_step_end",
    "control",
    # a report, which takes the form of data that it writes by name
    "textgrid",
    "vtt",
    # a picture, which asks for an option of its look by name
    "font_size",
    # io and zipfile, of streams and members
    "readinto",
    "writable",
    "compress_type",
    "comment",
    # read by rich, tokenizers and peft off their own objects
    "modules_to_save",
    "pre_tokenizer",
    # msgspec, which refuses a key that no field names
    "do_convert_rgb",
)

USED_BY_TESTS_ONLY = (
    # a source asked one thing
)

ALLOWED = (*CALLED_FROM_OUTSIDE, *USED_BY_TESTS_ONLY)


def named_in_tables(trees: tuple[str, ...] = TREES) -> set[str]:
    """The attributes that strings like "module:attribute" name."""
    target = re.compile(r"[a-z_][\w.]*:(\w+)")
    return {
        match[1]
        for tree in trees
        for file in Path(tree).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (match := target.fullmatch(node.value))
    }


def unused(trees: tuple[str, ...] = TREES) -> list[str]:
    """A line for each thing that nothing uses, and for each name that needs no allowance."""
    search = Vulture(ignore_decorators=["@app.*"])
    search.scavenge([Path(tree) for tree in trees])
    search.scan("\n".join(sorted(named_in_tables(trees))), "tables")
    found = [item for item in search.get_unused_code() if item.filename != "tables"]
    lines = [
        item.get_report() for item in found if not any(fits(item.name, name) for name in ALLOWED)
    ]
    stale = [name for name in ALLOWED if not any(fits(item.name, name) for item in found)]
    return lines + [f"{__file__}: '{name}' is used or gone, so allow it no more" for name in stale]


if __name__ == "__main__":
    found = unused()
    print("\n".join(found) or f"nothing in {', '.join(TREES)} is unused")
    sys.exit(bool(found))
