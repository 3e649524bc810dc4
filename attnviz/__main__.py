"""python -m attnviz."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def main() -> None:
    """Run the command line and leave.

    Collecting garbage while heavy packages load, and taking them down object by object at the end,
    would cost a run with a model a third of its time.
    """
    _answer_signals(_leave)
    import gc
    import warnings

    watched = sys.argv[1:2] == ["watch"]  # the program in it finds Python as it always is
    if not watched:
        gc.disable()
    if not (
        watched or sys.warnoptions
    ):  # a library's, of its own code; what matters here is a note or an error
        warnings.simplefilter("ignore")
        sys.warnoptions.append("ignore")  # which workers inherit
    _open_closed_streams()
    if not watched or sys.argv[2:] in (["--help"], ["-h"]):  # which has signs that ASCII lacks
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    folder = os.environ.get("MPLCONFIGDIR")
    from attnviz.cli.app import interrupt, run

    status = run(sys.argv[1:], lambda: _answer_signals(interrupt))
    _answer_signals(_leave)
    sys.stderr.flush()
    if watched:  # its threads and what it has registered for the end are waited for
        sys.exit(status)
    if (made := os.environ.get("MPLCONFIGDIR")) and made != folder:
        import shutil

        shutil.rmtree(made, ignore_errors=True)  # matplotlib's; atexit does not run
    os._exit(status)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: nothing is open yet, or everything is closed."""
    os._exit(128 + number)


def _answer_signals(answer: Callable[[int, FrameType | None], None]) -> None:
    """Answer Ctrl-C and SIGTERM so, unless whoever started this process has them ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, answer)


def _open_closed_streams() -> None:
    """Stand in for a stream that the shell closed (`>&-`), which Python would leave as None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


if __name__ == "__main__":
    main()
