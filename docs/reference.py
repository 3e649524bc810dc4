"""Reference pages and manual pages, generated from the options that the command line parses.

A command's synopsis, options, examples and summary are those of the command that typer builds.
`pages.py` turns them into pages of the site, `hatch_build.py` into manual pages and completions of
the wheel.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import typer

from attnviz import __version__
from attnviz.cli.app import app, build_command
from attnviz.core.registry import COMMANDS

EXIT = {
    "0": "done",
    "1": "could not: an input cannot be read, a line of a file failed, `--fail-above` was exceeded",
    "2": "asked wrongly: an option or a command that does not exist, or does not fit",
    "3": "`--fail-unsupported` found a sentence that no part of the context supports; `compare "
    "--fail-on` found a head with one of the verdicts",
    "130": "interrupted by Ctrl-C",
    "143": "ended by SIGTERM",
}
"""The meaning of each exit status."""
ALL = (
    "Data goes to stdout; progress, notes and errors go to stderr. Layers, heads, tokens and texts "
    "count from 0. Each command has its own manual page."
)
"""A paragraph for all commands."""
OF_A_PROGRAM = (
    "The exit status is the program's; 2 where attnviz was asked wrongly; 4 where files were asked "
    "for, no attention was seen, and the program itself ended with 0."
)
ENVIRONMENT = {
    "COLUMNS": "width of tables where there is no terminal; else 80",
    "NO_COLOR, FORCE_COLOR": "no colours in a terminal, or colours also elsewhere",
    "HF_HOME": "where models of the Hugging Face hub are kept",
    "HF_HUB_OFFLINE": "1: only folders and models kept already are loaded",
}
"""The environment variables that attnviz reads."""


@dataclass(frozen=True)
class Line:
    """An argument or an option: its names, its help, its range and default."""

    names: tuple[str, ...]
    metavar: str
    help: str
    notes: str


@dataclass(frozen=True)
class Page:
    """The page of a command."""

    name: str
    summary: str
    synopsis: str
    text: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    panels: dict[str, list[Line]] = field(default_factory=dict)


def pages() -> Iterator[Page]:
    """A page for each command, in the order of the table."""
    for name, entry in COMMANDS.items():
        command = build_command(name)
        _, *rest = _paragraphs(command.help)
        usage = command.collect_usage_pieces(typer.Context(command))
        panels: dict[str, list[Line]] = {}
        for parameter in command.params:
            if not getattr(parameter, "hidden", False):
                panels.setdefault(_panel(parameter), []).append(_line(parameter))
        yield Page(
            name,
            _paragraphs(command.help)[0] or entry.summary,
            " ".join(["attnviz", name, *usage]),
            tuple(part for part in rest if not is_example(part)),
            tuple(part for part in rest if is_example(part)),
            panels,
        )


def main_page() -> Page:
    """The page of the program itself."""
    summary, *rest = _paragraphs(app.registered_callback.callback.__doc__ or "")  # type: ignore[union-attr]
    own = Line(("--version",), "", "Show the version.", "")
    more = [
        Line(("--install-completion",), "", "Install completion for the current shell.", ""),
        Line(("--show-completion",), "", "Show completion for the current shell, to copy it.", ""),
        Line(("--help", "-h"), "", "Show what a command does, its options and examples.", ""),
    ]
    commands = [Line((name,), "", entry.summary, "") for name, entry in COMMANDS.items()]
    return Page(
        "",
        summary,
        "attnviz [OPTIONS] COMMAND [ARGS]...",
        (*(part for part in rest if not is_example(part)), ALL),
        examples=tuple(part for part in rest if is_example(part)),
        panels={"Commands": commands, "Options": [own, *more]},
    )


def is_example(paragraph: str) -> bool:
    """True where a paragraph of a command's help is a command line."""
    return re.match(r"(attnviz|\w+ .*(\||&&) attnviz) \S", paragraph) is not None


def _paragraphs(text: str | None) -> list[str]:
    import inspect

    return [part.strip() for part in inspect.cleandoc(text or "").split("\n\n")]


def _panel(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    return getattr(parameter, "rich_help_panel", None) or "Options"


def _line(parameter: Any) -> Line:
    argument = parameter.param_type_name == "argument"
    flag = getattr(parameter, "is_flag", False)
    metavar = "" if flag or argument else parameter.metavar or parameter.type.name.upper()
    names = [parameter.metavar or parameter.name.upper()] if argument else parameter.opts
    low, high = (getattr(parameter.type, end, None) for end in ("min", "max"))
    notes = []
    if low is not None or high is not None:
        notes.append(f"at least {low}" if high is None else f"{low} to {high}")
    if not argument and not flag and parameter.default not in (None, "", [], ()):
        notes.append(f"default: {parameter.default}")
    if getattr(parameter, "multiple", False):
        notes.append("may be repeated")
    return Line(tuple(names), metavar, parameter.help or "", "; ".join(notes))


# As Markdown


def markdown(page: Page) -> str:
    """A command's page of the site."""
    parts = [f"# attnviz {page.name}".rstrip(), page.summary]
    parts += [f"```sh\n{page.synopsis}\n```", *map(_escaped, page.text)]
    if page.examples:
        parts += ["## Examples", *(f"```sh\n{one}\n```" for one in page.examples)]
    for panel, lines in page.panels.items():
        what = "argument" if panel == "Arguments" else "option"
        head = f"| {what} | what it is |\n|---|---|\n"
        parts += [f"## {panel}", head + "\n".join(map(_row, lines))]
    return "\n\n".join([*parts, "## Exit status", _exits(page)]) + "\n"


def _row(line: Line) -> str:
    names = ", ".join(f"`{name}`" for name in line.names)
    metavar = f" *{line.metavar}*" if line.metavar else ""
    notes = f" ({line.notes})" if line.notes else ""
    return f"| {names}{metavar} | {_escaped(line.help)}{notes} |".replace("*ID_OR_", r"*ID\_OR\_")


def _escaped(text: str) -> str:
    return re.sub(r"([<>*_|\[\]\\])", r"\\\1", text)


def _exits(page: Page) -> str:
    if page.name == "watch":
        return OF_A_PROGRAM
    rows = (f"| {code} | {text} |" for code, text in EXIT.items())
    return "| status | meaning |\n|---|---|\n" + "\n".join(rows)


# As roff


def roff(page: Page) -> str:
    """A command's manual page."""
    title = _title(page)
    summary = page.summary[:1].lower() + page.summary[1:].rstrip(".")
    lines = [
        f'.TH {title.upper()} 1 "" "attnviz {__version__}" "attnviz manual"',
        ".nh\n.ad l",
        f".SH NAME\n{_plain(title)} \\- {_plain(summary)}",
        f".SH SYNOPSIS\n\\fB{_plain(page.synopsis)}\\fR",
    ]
    if page.text:
        lines.append(".SH DESCRIPTION")
        lines += [line for text in page.text for line in (*_flowing(text), ".PP")][:-1]
    for panel, entries in page.panels.items():
        lines.append(f".SH {panel.upper()}")
        for entry in entries:
            names = ", ".join(f"\\fB{_plain(name)}\\fR" for name in entry.names)
            metavar = f" \\fI{_plain(entry.metavar)}\\fR" if entry.metavar else ""
            notes = f" ({entry.notes})" if entry.notes else ""
            lines += [".TP", names + metavar, *_flowing(entry.help + notes)]
    lines.append(".SH EXAMPLES")
    lines += [one for text in page.examples for one in (".nf", *_lines(text), ".fi", ".PP")][:-1]
    lines.append(".SH EXIT STATUS")
    if page.name == "watch":
        lines += _flowing(OF_A_PROGRAM)
    else:
        lines += [one for code, text in EXIT.items() for one in (".TP", code, *_flowing(text))]
    if not page.name:
        lines.append(".SH ENVIRONMENT")
        for name, text in ENVIRONMENT.items():
            lines += [".TP", f"\\fB{_plain(name)}\\fR", *_flowing(text)]
    others = ["attnviz"] if page.name else [f"attnviz-{name}" for name in COMMANDS]
    lines += [".SH SEE ALSO", ",\n".join(f".BR {_plain(name)} (1)" for name in others)]
    return "\n".join(lines) + "\n"


def _flowing(text: str) -> list[str]:
    """Wrapped text in which roff reads no line as a request."""
    wrapped = textwrap.wrap(text.replace("`", ""), 76, break_on_hyphens=False)
    return _lines("\n".join(wrapped))


def _lines(text: str) -> list[str]:
    return [("\\&" if line[:1] in (".", "'") else "") + _plain(line) for line in text.split("\n")]


def _plain(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", text)


# The files of a wheel beside the package

COMPLETIONS = {
    "bash": "share/bash-completion/completions/attnviz",
    "zsh": "share/zsh/site-functions/_attnviz",
    "fish": "share/fish/vendor_completions.d/attnviz.fish",
}
"""Where each shell looks for completions."""


def shared() -> dict[str, str]:
    """The manual pages and the completion script of each shell, by their paths."""
    from typer._completion_shared import get_completion_script

    found = {f"share/man/man1/{_title(page)}.1": roff(page) for page in (main_page(), *pages())}
    for shell, path in COMPLETIONS.items():
        script = get_completion_script(
            prog_name="attnviz", complete_var="_ATTNVIZ_COMPLETE", shell=shell
        )
        # zsh reads the file at the first completion and uses that run's output as the answer.
        found[path] = script + ("\n_attnviz_completion\n" if shell == "zsh" else "\n")
    return found


def _title(page: Page) -> str:
    return f"attnviz-{page.name}".rstrip("-")
