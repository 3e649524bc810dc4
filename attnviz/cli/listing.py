"""How a command writes a list of names; what writes other results is imported by those alone."""

from attnviz.core.options import Options
from attnviz.renderers.reports import Data


def write_listing(data: Data, options: Options) -> None:
    """Write a list of names as a command's result."""
    from attnviz.cli.report import Report

    with Report(options, "listing") as report:
        report.add(data)
        report.finish("listed")
