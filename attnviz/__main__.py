"""python -m attnviz."""

import gc
import os
import sys


def main() -> None:
    """Run the command line and leave.

    Collecting garbage while heavy packages load, and taking them down object by object at the end,
    would cost a run with a model a third of its time.
    """
    gc.disable()
    _open_closed_streams()
    from attnviz.cli.app import run

    status = run(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)


def _open_closed_streams() -> None:
    """Stand in for a stream that the shell closed (`>&-`), which Python would leave as None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


if __name__ == "__main__":
    main()
