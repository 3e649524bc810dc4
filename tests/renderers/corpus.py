"""A report on a made-up corpus, for the tests of what renders it."""

from functools import cache

from attnviz.features.corpus.accumulators import Aggregates
from attnviz.features.corpus.report import report_of
from attnviz.features.corpus.results import CorpusReport
from attnviz.features.corpus.words import WordCounts
from tests.features.corpus.samples import attention_of, text_of


@cache
def corpus(texts: int = 20, layers: int = 2, heads: int = 2) -> CorpusReport:
    """Random attention over random words."""
    counts = WordCounts()
    for number in range(texts):
        counts.add(text_of(number))
    found = Aggregates(counts.vocabulary())
    for number in range(texts):
        found.add(attention_of(number, layers=layers, heads=heads), number)
    found.failures = 3
    return report_of(found, "layer")
