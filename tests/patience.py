"""How long a test waits for what another program does.

No test fails because the machine is busy: whoever waits takes `HUNG` seconds, which are far more
than anything takes, so that a program that never ends still makes its test fail.
"""

import threading
import time
from collections.abc import Callable

HUNG = 900


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does.

    Raises:
        TimeoutError: it never came.
    """
    pause, end = threading.Event(), time.monotonic() + HUNG
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        pause.wait(0.005)
