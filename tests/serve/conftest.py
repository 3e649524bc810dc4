"""One server for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.serve.server import Server, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The pocket model, served."""
    with serving() as found:
        yield found
