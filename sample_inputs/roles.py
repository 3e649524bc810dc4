# /// script
# requires-python = ">=3.11"
# dependencies = ["attnviz", "torch==2.13.0"]
#
# [tool.uv.sources]
# attnviz = { path = ".." }
# ///
"""Count the roles of a model's heads in some texts: uv run sample_inputs/roles.py TEXT..."""

import sys
from collections import Counter

from attnviz import heads


def main(texts: list[str]) -> None:
    """Print each role with the number of heads that have it, the most frequent first."""
    report = heads(texts or ["The cat saw the dog and the dog saw the cat."]).value
    roles = Counter(role.name for row in report.rows for role in row.roles[:1])
    for name, count in roles.most_common():
        print(f"{count:3} {name}")
    print(f"{sum(not row.roles for row in report.rows):3} no clear role")


if __name__ == "__main__":
    main(sys.argv[1:])
