"""How long a test waits for what another program does.

No test fails because the machine is busy: whoever waits takes `HUNG` seconds, which are far more
than anything takes, so that a program that never ends still makes its test fail. Among the tests
that train, resume and start programs, the longest (three trainings of two processes each) takes
20 seconds on two busy cores: a slow machine has room, and a test that hangs costs five minutes.
"""

import threading
import time
from collections.abc import Callable

HUNG = 300


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
