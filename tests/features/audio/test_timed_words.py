"""Words with their times: what is written is read again, and what is none is refused."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.errors import InputError
from attnviz.features.audio.timed_words import TimedWord, as_textgrid, as_vtt, read_timed_words

WORDS = [TimedWord('"red"', 0.2, 0.55), TimedWord("<b>&amp;", 0.7, 1.25), TimedWord("5", 1.25, 2)]
SHORT = (
    '"ooTextFile"\n"TextGrid"\n0\n2.5\n<exists>\n1\n"IntervalTier"\n"words"\n0\n2.5\n2\n'
    '0\n1\n""\n1\n2.5\n"car"\n'
)


LONG = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 2.5
tiers? <exists>
size = 1
item []:
    item [1]:
        class = "IntervalTier"
        name = "words 1"
        xmin = 0
        xmax = 2.5
        intervals: size = 2
        intervals [1]:
            xmin = 0
            xmax = 1
            text = ""
        intervals [2]:
            xmin = 1
            xmax = 2.5
            text = "car"
"""


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_every_form_is_read_as_it_was_written(tmp_path):
    grid = write(tmp_path, "a.TextGrid", as_textgrid(WORDS, 3.0))
    vtt = write(tmp_path, "a.vtt", as_vtt(WORDS))
    rows = "".join(f"{w.text}\t{w.start}\t{w.end}\n" for w in WORDS)
    for path in (grid, vtt, write(tmp_path, "a.tsv", rows),
                 write(tmp_path, "b.tsv", f"word\tstart\tend\n{rows}")):  # fmt: skip
        assert read_timed_words(path) == WORDS
    assert '0.200\n0.550\n"""red"""\n' in grid.read_text("utf-8")
    assert "00:00:00.700 --> 00:00:01.250\n&lt;b&gt;&amp;amp;\n" in vtt.read_text("utf-8")


def test_textgrids_are_read_short_long_and_without_length(tmp_path):
    for text in (SHORT, LONG):
        path = write(tmp_path, "a.textgrid", text)
        assert read_timed_words(path) == [TimedWord("car", 1, 2.5)]
    words = [TimedWord("a", 0, 0), TimedWord("b", 0, 1), TimedWord("c", 1, 1)]
    path = write(tmp_path, "a.textgrid", as_textgrid(words, 1.0))
    assert read_timed_words(path) == [TimedWord("b", 0, 1)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.wav", "", "end it in .tsv, .textgrid"),
        ("a.tsv", "", "holds no words with times"),
        ("a.tsv", "red\t0\n", "no complete .tsv"),
        ("a.tsv", "red\t0\tnan\n", "from 0 to nan s"),
        ("a.tsv", "red\t1\t2\ncar\t1.5\t3\n", r"'car' is spoken from 1.5 to 3 s, before"),
        ("a.tsv", "red car\t1\t2\n", "no single word"),
        ("a.vtt", "WEBVTT\n\n00:01.x --> 00:02\na\n", "holds no words"),
        ("a.vtt", "WEBVTT\n\n0.0.1 --> 00:02\na\n", "no complete .vtt"),
        ("a.textgrid", SHORT.replace("IntervalTier", "TextTier"), "no complete .textgrid"),
        ("a.textgrid", SHORT[:-12], "no complete .textgrid"),
    ],
)
def test_what_holds_no_times_is_refused_in_one_line(name, text, said, tmp_path):
    with pytest.raises(InputError, match=said):
        read_timed_words(write(tmp_path, name, text))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_timed_words(tmp_path / "none.vtt")


@pytest.mark.slow
@given(st.text(max_size=60), st.sampled_from([".tsv", ".vtt", ".textgrid"]), st.integers(0, 400))
def test_whatever_a_file_holds_it_is_read_or_refused(text, suffix, cut):
    whole = as_textgrid(WORDS, 3) if suffix == ".textgrid" else as_vtt(WORDS)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        for content in (text, whole[cut:], whole[:cut] + text):
            path.write_bytes(content.encode("utf-8", "surrogatepass"))
            with suppress(InputError):
                assert read_timed_words(path)
