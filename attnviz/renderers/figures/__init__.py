"""Pictures by matplotlib.

This module loads matplotlib before any other of the package, so that a reader's broken settings
(matplotlibrc, MPLBACKEND) stop no picture.
"""

import logging
import os
import sys
from contextlib import suppress

from attnviz.core.errors import OutputError, first_line


def _load_matplotlib() -> None:
    """Import matplotlib without its messages on folders and fonts, which change no picture."""
    # A family without a bold font is drawn in its regular one; that needs no warning.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    if "matplotlib.font_manager" in sys.modules:
        return
    # The name of a backend that does not exist would end the import.
    backend = os.environ.pop("MPLBACKEND", None)
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        import matplotlib.font_manager
    except (ValueError, OSError) as error:
        raise OutputError(f"matplotlib cannot read its settings: {first_line(error)}") from error
    finally:
        logger.setLevel(level)
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend is not None:
        with suppress(ValueError):
            matplotlib.rcParams["backend"] = backend


_load_matplotlib()
