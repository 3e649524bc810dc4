"""Pages that MkDocs adds to those of this folder, generated from the code and the root's files."""

from __future__ import annotations

import ast
import base64
import contextlib
import inspect
import io
import json
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]
import reference  # noqa: E402


def on_config(config: Any) -> Any:
    """List the commands' pages in the order of the table."""
    _at(config.nav, "Command line").extend(f"commands/{page.name}.md" for page in reference.pages())
    return config


def _at(entries: Any, title: str) -> Any:
    """The entries under a title of the navigation; None if there is no such title."""
    for entry in entries if isinstance(entries, list) else []:
        for name, inside in entry.items() if isinstance(entry, dict) else ():
            if found := inside if name == title else _at(inside, title):
                return found
    return None


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and draw the gallery's pictures anew."""
    from mkdocs.structure.files import File

    contents: dict[str, str | bytes] = {**generated_pages(), **draw_gallery()}
    for notebook in (DOCS / "notebooks").glob("*.ipynb"):
        contents |= notebook_page(notebook)
    for path, content in contents.items():
        if old := files.get_file_from_path(path):
            files.remove(old)
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page whose links to the root's files lead to the pages made of these."""
    doors = "../CONTRIBUTING.md#doors-one-new-file-and-one-row"
    markdown = markdown.replace(f"]({doors})", "](extending.md)")
    return re.sub(r"\]\(\.\./([A-Z]+)\.md", lambda match: f"]({match[1].lower()}.md", markdown)


def on_post_build(config: Any) -> None:
    """Check that no page loads anything from another host, since the site is read from disk.

    Raises:
        RuntimeError: a page does.
    """
    loads = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=\"?https?:[^>]*>")
    for page in Path(config.site_dir).rglob("*.html"):
        if found := loads.search(page.read_text(encoding="utf-8")):
            raise RuntimeError(f"{page} would load from another host: {found[0]}")


def notebook_page(file: Path) -> dict[str, str | bytes]:
    """A notebook with its outputs as a page and the page's pictures."""
    parts, found = list[str](), dict[str, str | bytes]()
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace("<details>", '<details markdown="1">'))
            continue
        parts.append(f"```python\n{source}\n```")
        printed = ""
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                name = f"{file.stem}_{len(found)}.png"
                found[f"notebooks/{name}"] = base64.b64decode(data["image/png"])
                parts.append(f"![]({name})")
            else:
                printed += "".join(data["text/plain"])
        if printed.strip():
            parts.append(f"```text\n{printed.rstrip()}\n```")
    download = f"[This notebook]({file.name}), to be run."
    return {f"notebooks/{file.stem}.md": "\n\n".join([*parts, download]) + "\n", **found}


def gallery() -> dict[str, str]:
    """The command of each picture of the gallery, by the picture's name."""
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    found = re.findall(r"\]\(gallery/([\w-]+\.png)\).*?```sh\nattnviz (.*?)\n```", text, re.DOTALL)
    return dict(found)


def draw_gallery(*names: str) -> dict[str, bytes]:
    """The pictures of the gallery, or some of them, as small files.

    Raises:
        RuntimeError: a command fails.
    """
    from attnviz.cli.app import run

    pictures = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("sample_inputs").symlink_to(ROOT / "sample_inputs")
        for name, command in gallery().items():
            if not names or name in names:
                if run([*shlex.split(command), "-f", "none", "-q"]):
                    raise RuntimeError(f"this command of the gallery fails: attnviz {command}")
                pictures[f"gallery/{name}"] = shrink(Path(name))
    return pictures


def shrink(file: Path) -> bytes:
    """A picture as a .png of 256 colours."""
    from PIL import Image

    kept = io.BytesIO()
    Image.open(file).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        kept, "png", optimize=True
    )
    return kept.getvalue()


def generated_pages() -> dict[str, str]:
    """The pages of the command line, of Python's functions and of the root's files."""
    found = {f"commands/{page.name}.md": reference.markdown(page) for page in reference.pages()}
    found["commands/index.md"] = commands_index()
    found["reference.md"] = python_reference()
    contributing = root_file("CONTRIBUTING.md")
    doors = contributing.index("## Doors")
    rest = contributing.index("## Changes")
    found["extending.md"] = re.sub(
        "^##",
        "#",
        contributing[doors:rest].replace(
            "## Doors: one new file and one row", "## How to add something"
        ),
        flags=re.MULTILINE,
    )
    found["contributing.md"] = contributing[:doors] + contributing[rest:]
    found["notebooks/README.md"] = (
        (DOCS / "notebooks" / "README.md").read_text("utf-8").replace(".ipynb)", ".md)")
    )
    found["changelog.md"] = root_file("CHANGELOG.md")
    found["security.md"] = root_file("SECURITY.md")
    return found


def root_file(name: str) -> str:
    """A file of the root, with links as the site needs them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(
        r"\]\((CHANGELOG|CONTRIBUTING|SECURITY)\.md", lambda m: f"]({m[1].lower()}.md", text
    )
    return re.sub(r"\[([^]]+)\]\((?:training|tests|sample_inputs)/[^)]*\)", r"\1", text)


def commands_index() -> str:
    """The commands in one table, with their exit statuses and environment variables."""
    rows = [f"| [{page.name}]({page.name}.md) | {page.summary} |" for page in reference.pages()]
    exits = [f"| {code} | {text} |" for code, text in reference.EXIT.items()]
    variables = [f"| `{name}` | {text} |" for name, text in reference.ENVIRONMENT.items()]
    return "\n\n".join(
        [
            "# Command line",
            f"{reference.ALL} These pages are made of the options that the program parses; `pip "
            "install` brings them as `man attnviz`, `man attnviz-self` and so on (an editable "
            "installation does not).",
            "| command | what it does |\n|---|---|\n" + "\n".join(rows),
            "## Exit status",
            "| status | meaning |\n|---|---|\n" + "\n".join(exits),
            "## Environment",
            "| variable | meaning |\n|---|---|\n" + "\n".join(variables),
        ]
    )


KEYWORD = inspect.Parameter.KEYWORD_ONLY
MEMORY = {
    "tokenizer": "What reads the texts of a model that is given itself.",
    "processor": "What reads the pictures or recordings of a model that is given itself.",
    "command": "self, cross or co; by default cross where there is a target.",
}
"""The options that only Python has."""


def python_reference() -> str:
    """Every public name of the package: functions by their options, classes by their docstrings."""
    import attnviz
    from attnviz.core.errors import in_words
    from attnviz.core.options import DECLARED
    from attnviz.core.options.option import names_in

    declared = {name: one for half in DECLARED.values() for name, one in half.items()}
    homes: dict[str, str] = vars(attnviz)["_HOMES"]
    functions = [
        name
        for name in homes
        if name.islower() and hasattr(getattr(attnviz, name), "__signature__")
    ]
    parts = [
        "# Python, name by name",
        "`import attnviz` gives these names. [The same from Python](python.md) has examples.",
    ]
    for name in functions:
        function = getattr(attnviz, name)
        text, taken = inspect.getdoc(function) or "", inspect.signature(function).parameters
        own = {one: item for one, item in taken.items() if f"\n    {one}: " in text}
        first = ", ".join(map(_signature, own.values()))
        parts += [f"## attnviz.{name}", f"`{name}({first}, …)`", _sections(text)]
        rows = []
        for item in (one for one in taken.values() if one.name not in own):
            shown = _signature(item.replace(default=item.empty))
            about = declared.get(item.name, (None, None))[1]
            choices = about and (about.choices or names_in(declared[item.name][0]))
            text = about.help.replace("{choices}", in_words(choices or ("",))) if about else ""
            rows.append(f"| `{shown}` | {reference._escaped(text or MEMORY[item.name])} |")
        if rows:
            parts.append("| option | what it is |\n|---|---|\n" + "\n".join(rows))
    for name in attnviz.__all__:
        if name not in functions:
            home = f"attnviz.{vars(attnviz)['_HOMES'][name]}".removesuffix(f".{name}")
            parts += [f"## attnviz.{name}", f"::: {home}.{name}"]
    layers = ast.parse((ROOT / "attnviz" / "layers.py").read_text("utf-8"))
    parts += ["## attnviz.layers", ast.get_docstring(layers) or ""]
    imports = (line.names for line in layers.body if isinstance(line, ast.ImportFrom))
    for name in sorted(one.name for names in imports for one in names):
        inner = "    options: {heading_level: 4}"
        parts += [f"### {name}", f"::: attnviz.layers.{name}\n{inner}"]
    return "\n\n".join(parts) + "\n"


def _sections(text: str) -> str:
    """A docstring whose sections are paragraphs with a word in bold."""
    text = re.sub(r"^(Args|Returns|Raises):\n", r"**\1**\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"\n {8}(?=\S)", " ", text)
    return re.sub(r"^    (\w+): ", r"- `\1`: ", text, flags=re.MULTILINE).replace("\n    ", "\n")


def _signature(parameter: Any) -> str:
    text = str(parameter).replace("'", "")
    text = re.sub(r"\b(?:pathlib|typing|collections\.abc|attnviz(?:\.\w+)+)\.(?=[A-Z])", "", text)
    return re.sub(r"Optional\[(Literal\[[^]]*\])\]", r"\1 | None", text)


if __name__ == "__main__":
    for path, content in draw_gallery(*sys.argv[1:]).items():
        (DOCS / path).write_bytes(content)
