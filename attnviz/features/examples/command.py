"""attnviz examples."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from attnviz.cli.places import note
from attnviz.commands.command import Run, command
from attnviz.core.options.option import arg
from attnviz.core.registry import FIELDS
from attnviz.features.examples import FILES
from attnviz.renderers.reports import listing, parse_fields
from attnviz.storage.writing import output_errors, write_file


@command(writes="listing")
def examples(
    folder: Path | None = arg("Folder to write them into, else only list them.", "FOLDER"),
    **options: Any,
) -> Any:
    """Write small files to try commands with: texts, pairs, a picture, a recording, programs.

    The examples of every command's help run in a folder that has them. A file
    of your own that has the same name stays.

    attnviz examples

    attnviz examples .
    """
    run = Run("examples", options)
    with run.report("listing") as report:
        if run.in_shell and (fields := parse_fields(run.options.output.fields)):
            FIELDS.load()(fields, "listing", report.formats, "example-files")
        other = [] if folder is None else [name for name in FILES if not _write(name, folder)]
        if other and not run.options.output.quiet:
            note(f"{', '.join(other)}: yours, which differ, stay")
        report.add(listing("example files", ("file", "about"), list(FILES.items())))
        report.finish("listed")
    return run.result


def _write(name: str, folder: Path) -> bool:
    """Write a file, unless there is one; False where that one is another."""
    own = files("attnviz.features.examples") / "files" / name
    place = own if own.is_file() else Path(__file__).parents[3] / "sample_inputs" / name
    content = place.read_bytes()
    file = folder / name
    with output_errors(file):
        folder.mkdir(parents=True, exist_ok=True)
        if file.exists():
            return file.read_bytes() == content
    write_file(file, content)
    return True
