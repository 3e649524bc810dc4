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
    from attnviz.cli.app import run

    status = run(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
