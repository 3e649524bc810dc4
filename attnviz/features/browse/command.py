"""attnviz browse."""

from __future__ import annotations

import signal
from typing import Any

from attnviz.cli.stderr import interrupt
from attnviz.commands.command import INPUT, RECORD, Run, command
from attnviz.core.errors import UsageError
from attnviz.core.options.option import arg


@command(
    *("model", "compute", "mechanism", "weights", "generate", "long", "causal", "to", "chat"),
    *("range", "reading"),
    also=("from_", "lens", "head", "special", "words", "quiet", "verbose", "errors"),
    report=(),
)
def browse(
    text: str | None = arg("Text, or a file: saved maps, a picture, a recording; - is stdin."),
    target: str | None = arg("Target of a pair, or what a picture is asked."),
    *,
    input: str | None = INPUT,  # noqa: A002 - as the option is called
    record: str | None = RECORD,
    **options: Any,
) -> int:
    """Browse attention by keys, in this terminal; ? lists them.

    attnviz browse "The professor who supervised the student published the paper"

    attnviz browse "The red car is fast" "La voiture rouge est rapide"

    attnviz self "The cat sat on the mat" -f npz | attnviz browse -

    attnviz browse shapes.png
    """
    how = Run("browse", options).options
    if how.choice.lens == "all":
        raise UsageError("--lens all is shown by a page: here l goes through the lenses one by one")
    from attnviz.features.browse import entry

    entry.check_terminal()
    signal.signal(signal.SIGHUP, interrupt)  # else it would leave the cursor hidden
    return entry.show(entry.open_first(entry.subjects_of(text, target, input, how), record), how)
