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

    Garbage collection while heavy packages load, and Python's clean-up at the end, would take a
    third of the time of a run with a model.
    """
    _answer_signals(_leave)
    import gc
    import warnings

    is_watch = sys.argv[1:2] == ["watch"]  # its program needs an ordinary Python
    if not is_watch:
        gc.disable()  # what start-up makes stays; once a model is open it runs again
        # Numpy's products are small: a second thread gains a sixth, but spins on a busy machine.
        if "aarch64" not in getattr(os, "uname", tuple)():  # torch has its own OpenBLAS there
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not (is_watch or sys.warnoptions):
        warnings.simplefilter("ignore")  # libraries warn of their own code
        sys.warnoptions.append("ignore")  # for worker processes
    _open_closed_streams()
    if not is_watch or sys.argv[2:] in (["--help"], ["-h"]):  # help has characters that ASCII lacks
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    folder = os.environ.get("MPLCONFIGDIR")
    from attnviz.cli.app import run
    from attnviz.cli.stderr import interrupt

    status = run(sys.argv[1:], lambda: _answer_signals(interrupt))
    _answer_signals(_leave)
    sys.stderr.flush()
    if is_watch:  # sys.exit() waits for the program's threads and runs its atexit functions
        sys.exit(status)
    if (own_folder := os.environ.get("MPLCONFIGDIR")) and own_folder != folder:
        import shutil

        # matplotlib made it for this run; its atexit function does not run before os._exit()
        shutil.rmtree(own_folder, ignore_errors=True)
    os._exit(status)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once, while nothing is open."""
    os._exit(128 + number)


def _answer_signals(answer: Callable[[int, FrameType | None], None]) -> None:
    """Set the handler of Ctrl-C and SIGTERM, unless the parent process ignores them (nohup)."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, answer)


def _open_closed_streams() -> None:
    """Open the null device for streams that the shell closed (`>&-`): Python sets them to None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


if __name__ == "__main__":
    main()
