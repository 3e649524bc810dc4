"""The app and its one error boundary: a user's mistake is one line and a status, a bug a traceback.

Commands are built when they are called, so that a run pays for its own options only.
"""

import errno
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

from attnviz.cli.stderr import INTERRUPTED, complain, signal_numbers, stderr_form, tell
from attnviz.core import __version__
from attnviz.core.errors import AttnvizError, UsageError, choose, did_you_mean
from attnviz.core.plugins import BROKEN, error_line, plugin_at_fault
from attnviz.core.registry import COMMANDS, DOCUMENT_SCHEMA, DOCUMENTS, FORMATS

OLD_NAMES = {
    "co": "cross A B --mechanism co",
    "corpus": "heads --input FILE",
    "history": "compare FOLDER",
    "lenses": "ablate TEXT --lenses",
    "mechanisms": "models --mechanisms",
    "schema": "--schema DOCUMENT",
    "serve": "live",
    "skill": "--guide",
    "wiring": "heads TEXT --wiring",
}
"""What commands of earlier versions are now."""


LONGEST_NAME = 200
"""Characters of a file's name that a message shows, at most."""


LOST = {getattr(errno, name, -1) for name in ("EIO", "ESTALE", "ETIMEDOUT", "ENXIO", "ENODEV")}
"""What a disk, or a share over the network, says in the middle of a file."""


class Commands(TyperGroup):
    """The group of all commands, each built on first use, with the error boundary around it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command's name, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command with name and summary only, enough to list it; None if unknown."""
        if cmd_name not in COMMANDS:
            return None
        row = COMMANDS[cmd_name]
        return TyperCommand(cmd_name, short_help=row.summary, rich_help_panel=row.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names, with all its options."""
        name, *rest = args
        if name in OLD_NAMES:
            raise UsageError(f"'attnviz {name}' is 'attnviz {OLD_NAMES[name]}' now")
        if name not in COMMANDS:
            choices = ", ".join(COMMANDS)
            advice = f"choose from {choices}.{did_you_mean(name, COMMANDS)}".rstrip(".")
            raise UsageError(f"unknown command '{name}': {advice}")
        return name, build_command(name), rest

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run and exit with the status."""
        run = super().main
        settings["standalone_mode"] = False
        stderr_form.set(_form_asked(args[0] if args and args[0] is not None else sys.argv[1:]))
        sys.exit(exit_status_of(lambda: run(*args, **settings)))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the list of commands."""
        with _help_printed():
            super().format_help(ctx, formatter)

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """Read the command line; --version and --help-all print while it is read."""
        with _reader_watched(BrokenPipeError):
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        with _reader_watched(BrokenPipeError):
            return super().invoke(ctx)


class Command(TyperCommand):
    """A command whose --help shows the options that most people use; --help-all shows all."""

    rare: Collection[str] = ()
    """The names of the parameters that --help only lists."""
    draws: Collection[str] = ()
    """The kinds of pictures that it draws."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; an option and a path is neither empty nor bytes that are no text."""
        if not ctx.resilient_parsing:  # as completion is
            from attnviz.core.values import check_option_text

            by_name, _, parameters = self.make_parser(ctx).parse_args(args=[*args])
            for item in parameters:
                is_text = item.param_type_name == "option" or item.type.name == "path"
                values: Any = by_name[item.name or ""] if is_text else ()
                for value in values if isinstance(values, list | tuple) else [values]:
                    check_option_text(max(item.opts, key=len), value)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, then the names of the options that it leaves to --help-all."""
        params: list[Any] = self.params
        rare = [item for item in params if item.name in self.rare]
        for item in rare:
            item.hidden = True
        try:
            with _help_printed():
                super().format_help(ctx, formatter)
        finally:
            for item in rare:
                item.hidden = False
        panels: dict[str, list[str]] = {}
        for item in rare:
            panels.setdefault(item.rich_help_panel, []).append(max(item.opts, key=len))
        if panels:
            _list_rare(panels)


@contextmanager
def _reader_watched(sign: type[BaseException]) -> Iterator[None]:
    """Say by a ReaderGoneError what otherwise this sign says: that nobody reads stdout any more."""
    try:
        yield
    except sign as error:
        raise ReaderGoneError from error


@contextmanager
def _help_printed() -> Iterator[None]:
    """Import what prints the help of the block."""
    _import_help()
    with _reader_watched(SystemExit):  # so rich ends
        yield


def _import_help() -> None:
    """Import what prints help, but for Markdown and tracebacks: half of the time, never used."""
    classes = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
    stands = {name: ModuleType(name) for name in classes if name not in sys.modules}
    for name, module in stands.items():
        setattr(module, classes[name], type(classes[name], (), {}))
    sys.modules |= stands
    try:
        import typer.rich_utils
    finally:
        for name in stands:
            del sys.modules[name]
    if "FORCE_COLOR" not in os.environ:  # typer takes the logs of GitHub for a terminal
        vars(typer.rich_utils)["FORCE_TERMINAL"] = None


def _list_rare(panels: Mapping[str, list[str]]) -> None:
    from rich.console import Console
    from rich.padding import Padding

    console = Console(highlight=False)
    console.print(" More options, which --help-all explains:")
    for panel, names in panels.items():
        console.print(Padding(f"{panel}: {' '.join(names)}", (0, 0, 0, 3)))
    console.print()


def _help_all() -> TyperOption:
    """The option that shows all options, also those that --help only lists."""

    def show(ctx: Any, _: Any, value: bool) -> None:
        if value:
            with _help_printed():
                TyperCommand.format_help(ctx.command, ctx, ctx.make_formatter())
            raise typer.Exit

    return TyperOption(
        param_decls=["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show every option and exit.",
    )


class ReaderGoneError(Exception):
    """The reader of stdout has closed it, as `head` does."""


def exit_status_of(run: Any) -> int:
    """Run a command and return its exit status; a user's mistake becomes one line on stderr."""
    try:
        status = _status_of(run)
    except BaseException as error:
        if signal_numbers and isinstance(error, Exception):
            status = INTERRUPTED  # a library turned the KeyboardInterrupt into this error
        elif package := plugin_at_fault(error):
            complain(f"the plug-in {package} failed: {error_line(error)}", "PluginError")
            status = 1
        else:
            raise
    if status == INTERRUPTED:  # 130 after Ctrl-C, 143 after SIGTERM, as in a shell
        return 128 + (signal_numbers[0] if signal_numbers else signal.SIGINT)
    return status


def _status_of(run: Any) -> int:
    try:
        status = run()
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except AttnvizError as error:
        complain(str(error), type(error).__name__, error.status)
        return error.status
    except TyperException as error:
        # Without arguments typer has shown the help, and the message is empty.
        if message := _message_of(error):
            complain(message, "UsageError", error.exit_code)
        return error.exit_code
    except (ReaderGoneError, BrokenPipeError):
        # Python would flush the buffer as it ends, and fail again.
        _forget_stdout()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except MemoryError as error:
        complain(f"not enough memory ({error}): choose less text or a smaller layer", "MemoryError")
        return 1
    except (OSError, RuntimeError) as error:
        if (line := _system_message(error)) is None:
            raise
        complain(line, "OutputError")
        if getattr(error, "errno", None) == errno.ENOSPC:
            _forget_stdout()
        return 1


def _system_message(error: OSError | RuntimeError) -> str | None:
    """One line about an error of the system; None if a user cannot mend it."""
    if "can't start new thread" in str(error) or getattr(error, "errno", None) == errno.EAGAIN:
        return "the system lets this user start no more threads and processes: see ulimit -u"
    if isinstance(error, RuntimeError):
        return None
    if error.filename is not None:  # the name is too long, a loop of links, or gone by now
        name = str(error.filename)
        short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        return f"cannot use '{short}': {error.strerror}"
    if error.errno == errno.ENOENT:  # only the working folder's error has no file name
        return "the working folder does not exist any more: cd into another"
    if error.errno in LOST:
        return f"cannot read a file: {error.strerror}"
    # Data handles a full disk where it is written; typer prints help and version without that.
    return f"cannot write: {error.strerror}" if error.errno == errno.ENOSPC else None


def _form_asked(arguments: Sequence[str]) -> str:
    """The value of --errors, which holds for mistakes in the command line itself, too."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = ("--errors", "json") in pairwise(words) or "--errors=json" in words
    return "json" if as_json else "text"


def _message_of(error: TyperException) -> str:
    """The message of a typer error, in this package's words."""
    message = error.format_message()
    option = getattr(error, "option_name", None)
    if option and message.startswith("No such option"):
        context: Any = getattr(error, "ctx", None)
        if former := _what_became_of(option, context.command):
            return former
        guess = did_you_mean(option, getattr(error, "possibilities", None) or ())
        return f"unknown option '{option}'.{guess or ' --help-all lists them'}"
    text = str(getattr(error, "message", ""))
    match = re.fullmatch(r"(?:Value error, )?'(.*)' is not one of (.*)", text, re.DOTALL)
    names = getattr(getattr(error, "param", None), "opts", None)
    if match and names:
        choices = re.findall("'(.*?)'", match[2])
        advice = f"choose from {', '.join(choices)}.{did_you_mean(match[1], choices)}"
        if names[0] == "--format" and match[1] in FORMATS:
            return f"format '{match[1]}' cannot hold what this command writes: {advice}"
        return f"unknown value '{match[1]}' for {names[0]}: {advice}"
    return message[:1].lower() + message[1:].rstrip(".")


def _what_became_of(option: str, command: Any) -> str:
    """What a former option is now; empty if it was none of this command."""
    from attnviz.core.options import FORMER

    kinds = {f"--{name}" for name in getattr(command, "draws", ())}
    of_kind = f"is now --picture {option[2:]}:FILE" if option in kinds else ""
    text = FORMER.get(option, of_kind)
    names = {name for item in command.params for name in item.opts}
    successor = re.search("--[a-z-]+", text)
    return f"{option} {text}" if text and (not successor or successor[0] in names) else ""


def _forget_stdout() -> None:
    """Drop what stdout still holds, so that Python does not fail to flush it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_command(name: str) -> Any:
    """The typer command made of a function, with the summary of the table."""
    from attnviz.cli.options import for_typer  # which the list of commands needs not

    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    own = COMMANDS[name].load().command
    # `watch` leaves options behind the script to the script.
    settings = {"allow_interspersed_args": name != "watch"}
    # A terminal breaks the lines of a paragraph, in another place than the source does.
    paragraphs = re.sub(r"(?<=\S)\n *(?=\S)", " ", own.help)
    texts: dict[str, Any] = {"help": paragraphs, "short_help": COMMANDS[name].summary}
    single.command(name, cls=Command, context_settings=settings, **texts)(for_typer(own))
    command: Any = typer.main.get_command(single)
    command.rare, command.draws = own.rare, own.picture_kinds
    command.params.append(_help_all())
    return command


def _version(value: bool) -> None:
    if value:
        print(f"attnviz {__version__}")
        raise typer.Exit


def _guide(value: bool) -> None:
    if value:
        from importlib.resources import files

        print(files("attnviz.cli").joinpath("guide.md").read_text("utf-8"), end="")
        raise typer.Exit


def _schema(name: str | None) -> None:
    if name is not None:
        schema = DOCUMENT_SCHEMA.load()(choose(name, DOCUMENTS.load(), "document"))
        print(json.dumps(schema, indent=2))
        raise typer.Exit


def _documents(start: str) -> list[str]:
    """The documents that a shell completes."""
    return [name for name in DOCUMENTS.load() if name.startswith(start)]


app = typer.Typer(
    name="attnviz",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def attnviz(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    guide: Annotated[
        bool,
        typer.Option(
            "--guide", callback=_guide, is_eager=True, help="Print a short guide for programs."
        ),
    ] = False,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            callback=_schema,
            is_eager=True,
            metavar="DOCUMENT",
            autocompletion=_documents,
            help="Print the JSON Schema of a document: heads, maps, …; --guide names them.",
        ),
    ] = None,
) -> None:
    """See where a transformer looks: attention as tables, heat maps, grids and clean data.

    attnviz self "The professor who supervised the student published the paper"

    attnviz cross "The red car is fast" "La voiture rouge est rapide"

    COMMAND --help explains a command and its usual options, COMMAND --help-all every option.

    'attnviz examples .' writes the files that examples of help read.
    """
    for problem in BROKEN:
        tell("note", problem)


def run(arguments: list[str], begin: Callable[[], None] | None = None) -> int:
    """Run the command line and return its status; `begin` is called once errors are caught."""

    def work() -> int:
        if begin is not None:
            begin()
        try:
            typer.main.get_command(app).main(arguments, prog_name="attnviz")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0

    return exit_status_of(work)
