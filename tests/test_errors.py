import pickle

import pytest

from attnviz.analyses.select import positions
from attnviz.core import errors
from attnviz.core.errors import AttnvizError, UsageError, choose, did_you_mean, is_number
from attnviz.storage.texts.lines import BrokenFileError
from tests.invoke import OWN, attnviz


def test_every_error_has_a_status_and_travels_whole():
    kinds = [item for item in vars(errors).values() if isinstance(item, type)]
    children = [item for item in kinds if issubclass(item, AttnvizError)]
    assert {item.status for item in children} == {1, 2, 3}
    assert [item for item in children if item.status == 2] == [UsageError, errors.UnfitTextError]
    # A process sends it pickled, and a corpus out of a pipe waits in a file until it is read.
    assert BrokenFileError in family(AttnvizError)
    for kind in family(AttnvizError):
        error = BrokenFileError.after("a", 3, "cut") if kind is BrokenFileError else kind("a\nb")
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), vars(back)) == (kind, str(error), vars(error))


def family(kind: type[AttnvizError]) -> list[type[AttnvizError]]:
    return [kind, *(child for own in kind.__subclasses__() for child in family(own))]


def test_names_are_allowed_or_guessed():
    assert choose("a", ("a", "b"), "letter") == "a"

    with pytest.raises(UsageError) as caught:
        choose("tabel", ("table", "json"), "format")
    assert (
        str(caught.value)
        == "unknown format 'tabel': choose from table, json. Did you mean 'table'?"
    )
    assert did_you_mean("zzz", ("table", "json")) == ""


def test_numbers_and_ranges_have_ends():
    assert is_number("007")
    assert is_number("9" * 18)
    assert not any(map(is_number, ("9" * 19, "9" * 5000, "²", "-1", "1.0", "")))
    assert positions("1-999999999999999999", ["0", "1", "mean", "2"]) == [1, 3]


ENDLESS = "9" * 5000
"""More digits than Python turns into a number."""


@pytest.mark.parametrize(
    "given",
    [
        ("self", "a b", "--layer", ENDLESS),
        ("self", "a b", "--head", f"0-{ENDLESS}"),
        ("self", "a b", "--model", "x", "--rows", ENDLESS),
        ("self", "a b", "--group", "{folder}/group.txt"),
        ("self", "--input", "{folder}/texts.tsv", "--columns", f"text={ENDLESS}"),
        ("heads", "--treebank", "{folder}/trees.conllu"),
        ("align", "{folder}/texts.tsv", "--score", "{folder}/links.txt"),
        ("heads", "--input", "{folder}/texts.tsv", "--frequencies", "{folder}/counts.txt"),
        ("render", "{folder}/links.txt"),
        ("render", "{folder}/map.json", "--record", ENDLESS),
    ],
)
def test_a_number_without_end_is_refused_in_one_line(given, tmp_path):
    (tmp_path / "group.txt").write_text(f"@0-{ENDLESS}\n")
    (tmp_path / "texts.tsv").write_text("a\tb\n")
    (tmp_path / "trees.conllu").write_text(f"1\ta\ta\tX\tX\t_\t{ENDLESS}\troot\t_\t_\n\n")
    (tmp_path / "links.txt").write_text(f"0-{ENDLESS}\n")
    (tmp_path / "counts.txt").write_text(f"a\t{ENDLESS}\n")
    attnviz("self", "a b", *OWN, "-q", "-o", tmp_path / "map.json")
    done = attnviz(*(word.replace("{folder}", str(tmp_path)) for word in given))
    assert done.status in (1, 2)
    assert done.mistake
