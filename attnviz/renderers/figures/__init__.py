"""Pictures, by matplotlib, whose own settings of the reader's (matplotlibrc, MPLBACKEND) end none.

matplotlib is loaded here, before any module of this package asks for it.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress

from attnviz.core.errors import OutputError, first_line


def _load_matplotlib() -> None:
    """Import matplotlib, and say nothing of its folders and fonts: they change no picture."""
    # A family without a bold font is drawn in its regular one; nobody needs to read that.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    if "matplotlib.font_manager" in sys.modules:
        return
    # The name of a backend that does not exist would end the import.
    backend = os.environ.pop("MPLBACKEND", None)
    said = logging.getLogger("matplotlib")
    level = said.level
    said.setLevel(logging.ERROR)
    try:
        import matplotlib.font_manager
    except (ValueError, OSError) as error:
        raise OutputError(f"matplotlib cannot read its settings: {first_line(error)}") from error
    finally:
        said.setLevel(level)
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend is not None:
        with suppress(ValueError):
            matplotlib.rcParams["backend"] = backend


_load_matplotlib()
