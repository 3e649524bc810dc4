"""Each head's score on the relations of a treebank."""

import io
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.options import Options
from attnviz.features.treebank import conllu, table
from attnviz.features.treebank.study import TreebankStudy
from attnviz.models.open import open_source
from attnviz.renderers.reports import data_of
from attnviz.runs.pipeline import Result, attend_chunk, result_of
from attnviz.runs.reporting import RunReport, good_results
from attnviz.storage.matrices import read_bytes
from attnviz.storage.texts import Text, chunks


def report_relations(file: str, options: Options, report: RunReport) -> None:
    """Score heads on a treebank's relations ("-": stdin); bad sentences are named and left out."""
    # All sentences are read before a model loads.
    stdin = file == "-"
    lines = sys.stdin.buffer if stdin else io.BytesIO(read_bytes(Path(file)))
    sentences = list(conllu.read_sentences(lines, "stdin" if stdin else f"'{file}'"))
    source = open_source(options.origin, "self")
    study = TreebankStudy()

    texts = [Text("0", one.text, where=f"the sentence at {one.where}") for one in sentences]

    def add(sentence: conllu.Sentence, result: Result, _: Text) -> Result:
        study.add(sentence, result)
        for note in result.provenance.notes:
            report.hold(note)
        return result

    def results() -> Iterator[tuple[None, Result | AttnvizError]]:
        rest = iter(sentences)
        for chunk in chunks(texts):
            outcomes = attend_chunk(source, chunk, options.choice, "self", options.many.batch_size)
            for text, sentence, one in zip(chunk, rest, outcomes, strict=False):
                if not isinstance(one, AttnvizError):
                    one = result_of(text, partial(add, sentence, one))
                yield None, one

    count = sum(1 for _ in good_results(results(), report, lambda: len(sentences)))
    if not count:
        raise InputError(f"'{file}' holds no sentence that could be used")
    result = study.report()
    for note in result.notes:
        report.say(note)
    report.add(data_of(result, *table.TREEBANK))
    report.finish(f"{count} sentences")
