"""What a served answer takes beside the same work of the library: milliseconds, in turns.

The library attends, predicts each token and makes the page; the server answers a question over a
connection that stays open. Run it as a script; it prints medians and asserts nothing.

    python -m benchmarks.serve_overhead [TURNS]
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from time import perf_counter

from attnviz.core.effects import Intervention, log_probabilities
from attnviz.core.options import Choice, Origin
from attnviz.features.experiments.texts import open_experiment
from attnviz.runs.many_texts import source_for
from attnviz.runs.pipeline import attend_one, query_of
from attnviz.storage.texts import Text
from tests.features.live.server import serving

TEXT = Text("0", "The old man saw the little dog in the garden.")


def library() -> None:
    """The work by itself."""
    source = source_for(Origin(), "cross", with_head=True)
    result = attend_one(source, TEXT, Choice(), "cross")
    log_probabilities(open_experiment(source, query_of(TEXT, "cross"), None), [Intervention()])
    result.page()


def seconds_of(work: Callable[[], object]) -> float:
    """Milliseconds."""
    begun = perf_counter()
    work()
    return 1000 * (perf_counter() - begun)


def main() -> None:
    """Measure both."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    body = json.dumps({"source": TEXT.text})
    with serving() as server:
        connection = server.connect()

        def ask() -> None:
            connection.request("POST", "/attend", body, server.own)
            found = connection.getresponse()
            assert found.status == 200
            found.read()

        for _ in range(5):
            library()
            ask()
        times = [(seconds_of(library), seconds_of(ask)) for _ in range(turns)]
        connection.close()
    own, served = (statistics.median(column) for column in zip(*times, strict=True))
    more = statistics.median(later - first for first, later in times)
    print(
        f"library {own:.1f} ms, served {served:.1f} ms, {more:.1f} ms more (medians of {turns} "
        "turns)"
    )


if __name__ == "__main__":
    main()
