"""What is drawn of a state, and what keys make of it: no terminal is needed for that."""

import io
import itertools
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

import attnviz
from attnviz.core.attention_map import Token
from attnviz.core.effects import HeadAt, Intervention
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Choice, Options, Origin
from attnviz.features.browse import entry
from attnviz.features.browse.ask import Subject, Subjects, text_subject
from attnviz.features.browse.draw import heads as draw_heads
from attnviz.features.browse.draw import numbers, plain, screen
from attnviz.features.browse.entry import as_chosen, open_first, subjects_of
from attnviz.features.browse.keys import KEYS, STEPS, perform, press, read
from attnviz.features.browse.output import command_of, save
from attnviz.features.browse.state import State, begin, same_place
from attnviz.storage.texts import BadText, Text
from tests.hugging_face import tiny_models
from tests.invoke import attnviz as attnviz_of

SIZES = [(80, 24), (60, 20), (200, 60), (20, 6), (1, 1), (72, 3)]
COLORS = ["truecolor", "256", "standard", None]
ODD = [
    "[bold]red[/]",
    "\x1b[31m",
    "日本語",
    "e\u0301\u0302",
    "שלום",
    "\u202eabc",
    "\n",
    "\u200b",
    " ",
]


def weights(layers=2, heads=3, rows=4, columns=None, seed=0):
    made = np.random.default_rng(seed).random((layers, heads, rows, columns or rows))
    return (made / made.sum(-1, keepdims=True)).astype(np.float32)


def saved(tokens=("My", "sister", "bought", "cars"), **shape):
    keys = shape.pop("keys", None)
    columns = {"columns": len(keys)} if keys else {}
    return attnviz.from_numpy(weights(rows=len(tokens), **columns, **shape), list(tokens), keys)


def signed():
    made = np.random.default_rng(1).normal(size=(2, 2, 3, 3)).astype(np.float32)
    made[0, 0, 0] = np.nan
    return attnviz.from_numpy(made, ["a", "b", "c"], values="signed")


def picture():
    tokens = [f"{row},{column}" for row in range(3) for column in range(4)]
    result = attnviz.from_numpy(weights(rows=12), tokens)
    item = replace(result.main, query_side="picture", key_side="picture")
    return replace(result, maps=(item,), text=None)


def after(state: State, *keys: str) -> State:
    """The state after keys, whose work is done at once."""
    for key in keys:
        step = press(state.say(""), key)
        state = step if isinstance(step, State) else state
        state = perform(state, step)[0] if callable(step) else state
    return state


SCREENS = {
    "text": lambda: begin(saved()),
    "pair": lambda: begin(saved(keys=["Meine", "Schwester", "kaufte"])),
    "odd": lambda: begin(saved(ODD)),
    "one token": lambda: begin(saved(["x"], layers=1, heads=1)),
    "signed": lambda: begin(signed()),
    "many heads": lambda: begin(saved(layers=40, heads=50)),
    "long": lambda: begin(saved([f"w{n}" for n in range(300)], layers=1, heads=2)),
    "picture": lambda: begin(picture(), pictures={"self": np.full((30, 40, 3), 99, np.uint8)}),
    "patches": lambda: begin(picture()),
}


def some_slow(*fast):
    """The screens, of which all but these are left to the slow tier."""
    return [one if one in fast else pytest.param(one, marks=pytest.mark.slow) for one in SCREENS]


@pytest.mark.parametrize("name", some_slow("text", "pair", "odd", "signed", "picture"))
def test_every_screen_fills_its_size_in_any_colours(name):
    for size, colors, matrix, dark in itertools.product(SIZES, COLORS, (0, 1), (0, 1)):
        state = replace(
            SCREENS[name](), size=size, colors=colors, matrix=bool(matrix), dark=bool(dark)
        )
        lines = screen(state)
        assert [cell_len(plain(line)) for line in lines] == [size[0]] * size[1], (size, colors)
        text = "".join(map(plain, lines))
        assert not {one for one in text if not one.isprintable()}, (size, colors)
        if colors in ("standard", None):
            inks = {(one.style.color, one.style.bgcolor) for line in lines for one in line}
            assert inks == {(None, None)}


@pytest.mark.parametrize("name", some_slow("text", "pair", "picture"))
def test_every_key_leads_to_a_screen(name):
    keys = [*STEPS, "up", "down", "left", "right", "tab", "shift+tab", "home", "end", "pageup"]
    for first, key in itertools.product(("", "enter", "p", "s"), keys):
        state = SCREENS[name]()
        for one in filter(None, (first, key, "down", "right")):
            state = after(state, one)
            assert len(screen(state)) == 24
        item = state.item
        assert 0 <= state.layer < len(item.layers)
        assert 0 <= state.head < len(item.heads)
        assert 0 <= state.query < len(item.query_tokens)
        assert 0 <= state.aim < len(item.key_tokens)


@pytest.mark.parametrize("name", SCREENS)
def test_a_click_anywhere_leads_to_a_screen(name):
    for matrix in (False, True):
        state = replace(SCREENS[name](), matrix=matrix)
        for line in screen(state):
            for span in line:
                step = press(state, span.act)
                if isinstance(step, State):
                    assert 0 <= step.aim < len(step.item.key_tokens), span
                    assert 0 <= step.query < len(step.item.query_tokens), span


def test_the_numbers_on_the_screen_are_those_of_the_map():
    state = replace(begin(saved()), size=(100, 24), layer=1, head=2, query=1, key=None)
    row = saved().weights[1, 2, 1]
    best = int(row.argmax())
    text = "\n".join(map(plain, screen(state)))
    assert "layer 1 head 2" in text
    name = ("My", "sister", "bought", "cars")[best]
    assert f"sister looks at {name} {row[best]:.2f}".replace(" 0.", " .") in text
    line = next(line for line in text.splitlines() if "▸" in line.partition("│")[2])
    assert line.partition("│")[2].split()[-4:] == [f"{one:.2f}"[1:] for one in row]


@pytest.mark.parametrize("key", [0, 19, 39])
def test_columns_that_have_no_room_leave_a_mark(key):
    state = replace(begin(saved([f"w{number}" for number in range(40)])), key=key)
    header = plain(numbers(state, 20, 60)[0])
    assert f" w{key} " in f"{header.replace('›', ' ').replace('‹', ' ')} "
    assert ("‹" in header, "›" in header) == (key > 0, key < 39)


def test_arrows_move_and_next_goes_through_the_heads():
    state = replace(begin(saved()), layer=0, head=0, query=0)
    assert (after(state, "down").layer, after(state, "right").head) == (1, 1)
    assert after(state, "up", "left").layer == 0
    inside = replace(after(state, "enter"), key=1)
    assert (after(inside, "down").query, after(inside, "right").key) == (1, 2)
    assert after(inside, "right", "escape").matrix is False
    assert [after(state, key).query for key in ("tab", "shift+tab", "end")] == [1, 3, 3]
    state = begin(saved([*"abcdefg"], layers=3, heads=2))
    order = state.rank()
    assert sorted(order) == [(layer, head) for layer in range(3) for head in range(2)]
    seen = []
    for key in "Nnnnnn":
        state = after(state, key)
        seen.append((state.layer, state.head))
    assert seen == order
    assert after(state, "n").message.startswith("head 1 of 6")


def test_saved_maps_without_a_model(monkeypatch):
    for key in "/xtw":
        state = press(begin(saved()), key)
        assert "attnviz browse TEXT --model NAME" in state.message
    monkeypatch.setenv("COLORFGBG", "15;0")
    state, seen = begin(saved()), []
    for _ in range(3):
        state = after(state, "l")
        seen.append(state.lens)
    assert seen == ["rollout", "flow", "raw"]
    other = as_chosen(state, Options(choice=Choice(lens="gradient")))
    assert other.lens == "raw"
    assert "gradient" in other.message


def test_places_and_records_are_found():
    pieces = [Token("[CLS]", special=True), Token("play", 0, 4), Token("##ing", 4, 7)]
    words = [Token("playing", 0, 7)]
    assert [same_place(pieces, at, words) for at in range(3)] == [0, 0, 0]
    assert same_place(words, 0, pieces) == 1
    texts = [Text("7", "a"), BadText("b", InputError("broken")), Text("1", "c")]
    subjects = Subjects(text_subject(Origin(), one) for one in texts)
    found = [subjects.find(record)["number"] for record in (None, "7", "0", "1", "2")]
    assert found == [0, 0, 0, 2, 2]
    for record, error in (("d", "no text d"), ("9", "no text 9")):
        with pytest.raises(InputError, match=error):
            subjects.find(record)


def test_every_key_is_known_and_documented():
    names = {"tab", "↑↓", "←→", "enter"}
    assert {key for key, _, _ in KEYS} - names <= {*STEPS}
    page = (Path(__file__).parents[3] / "docs" / "browse.md").read_text("utf-8")
    table = page.partition("|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == [f"| {key} | {does} |" for key, _, does in KEYS]


@pytest.fixture(scope="module")
def live():
    origin = attnviz.attend("a").again.origin
    return opened(
        Subject(origin, "cross", Text("0", "The red car is fast.", "La voiture rouge est rapide."))
    )


def opened(*subjects: Subject) -> State:
    return open_first(Subjects(subjects), None)


def test_heads_links_and_tokens_are_off(live):
    state = live
    off = after(state, "x")
    assert off.effect.startswith("1 head off: log p of the output")
    found = attnviz.ablate(*state.subject.texts.values(), heads=[state.name]).value.effects[0]
    shown = off.effect.partition("output ")[2].partition(" ·")[0].replace("−", "-")
    assert float(shown) == pytest.approx(-found.effect, rel=0.05)
    assert "╳" in "".join(map(plain, screen(off)))
    on = after(off, "x")
    assert (on.effect, on.off) == ("", Intervention())
    np.testing.assert_array_equal(on.base.weights, state.raw.weights)
    assert after(off, "X").off == Intervention()
    link = after(state, "enter", "x")
    assert link.effect.startswith(f"{len(link.off.links)} link")
    at = link.off.links[0]
    changed = link.base.map_of(at.stream)
    layer = changed.layers.index(at.layer)
    assert changed.weights[layer, at.head, at.query, at.key] == 0
    token = after(state, "t")
    assert token.effect.startswith(f"{len(token.off.tokens)} token")
    why = after(state, "w")
    assert "why there" in why.page
    lens = after(state, "l")
    assert lens.lens != "raw"
    texts = ("The red car is fast!", "La voiture est rapide.")
    other, _ = perform(state, lambda: read(state.subject.with_texts(texts)))
    assert other.seen.source == "The red car is fast!"
    assert (*other.subject.texts.values(),) == texts


def test_what_is_seen_is_saved_and_printed_by_a_command(live, tmp_path, monkeypatch):
    state = live
    monkeypatch.chdir(tmp_path)
    state = after(state, "enter")
    assert save(state, "a") == "wrote a.png and a.json"
    assert attnviz.load("a.json")[0].weights.shape[:2] == (1, 1)
    said = command_of(state)
    assert said.startswith("attnviz cross 'The red car is fast.' 'La voiture rouge")
    assert f"--head {state.name}" in said
    assert "--words" in said


def test_several_texts_are_gone_through_forth_and_back(live):
    texts = [Text("a", "Red."), BadText("b", InputError("broken")), Text("c", "Red.", "Rouge.")]
    state = opened(*(text_subject(live.subject.origin, one) for one in texts))
    assert after(state, "[").message == "there is no text before this one"
    broken = after(state, "]")
    assert (broken.message, broken.seen.text) == ("broken", "Red.")
    last = after(broken, "]")
    assert (last.message, last.seen.source, last.subject.kind) == ("text 2", "Red.", "cross")
    assert after(last, "]").message == "there is no text behind this one"
    np.testing.assert_array_equal(after(last, "[", "[").raw.weights, state.raw.weights)


@pytest.mark.parametrize("way", ["file", "stdin", "stdin as a file", "stdin with a target"])
def test_texts_are_gone_through_however_they_come(way, tmp_path, monkeypatch):
    file, lines = tmp_path / "t.txt", "a cat\na dog\nthe car\n"
    file.write_text(lines, "utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    target = "une voiture" if "target" in way else None
    names = {"file": (None, None, str(file)), "stdin as a file": (None, None, "-")}
    subjects = subjects_of(*names.get(way, ("-", target, None)), Options())
    state = open_first(subjects, "1")
    monkeypatch.setattr("sys.stdin", None)  # by then it is the terminal
    states = [after(state, "]"), after(state, "["), after(state, "[", "["), after(state, "[", "]")]
    seen = [one.seen.source or one.seen.text for one in states]
    assert seen == ["the car", "a cat", "a cat", "a dog"]
    assert state.subject.text.target == target
    assert state.subject.kind == ("cross" if target else "self")


def test_several_saved_maps_are_gone_through(tmp_path, monkeypatch):
    file = tmp_path / "m.npz"
    attnviz_of("self", "-i", "-", "-o", file, "-f", "none", stdin=b"a cat\na dog\nthe car\n")
    state = open_first(subjects_of(str(file), None, None, Options()), "1")
    assert state.seen.text == "a dog"
    for key, text, record in (("]", "the car", "--record 2 "), ("[", "a cat", "--head ")):
        moved = after(state, key)
        assert moved.seen.text == text
        assert command_of(moved).startswith(f"attnviz render {file} {record}")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    state = open_first(subjects_of("-", None, None, Options()), None)
    assert after(state, "]").seen.text == "a dog"
    assert command_of(state) == ""


def test_saved_maps_that_were_written_out_too_are_browsed(tmp_path, monkeypatch):
    file, shown = tmp_path / "m.npz", list[State]()
    saved().save(file)
    monkeypatch.setattr(entry, "check_terminal", lambda: None)
    monkeypatch.setattr(entry, "show", lambda state, options: shown.append(state))
    for given, stdin in ((file, b""), ("-", file.read_bytes())):
        assert attnviz_of("render", given, "--browse", "-f", "none", stdin=stdin).status == 0
    assert [one.subject.saved for one in shown] == [("render", str(file)), ()]


def test_heads_that_share_keys_stand_between_lines():
    sizes = {"self": {"0": 1, "1": 2}}
    state = begin(replace(saved(heads=4), group_sizes=sizes))
    for layer, head, edges in ((0, 3, 1), (1, 3, 1), (1, 1, 0), (1, 2, 0)):
        shown = replace(state, layer=layer, head=head, size=(110, 24))  # a head's own marks win
        lines = list(map(plain, draw_heads(shown, 20, 60)))
        assert ("in groups of 2" in plain(screen(shown)[0])) == (layer == 1)
        assert [line.count("│") for line in lines if line[:1] in ("0", "1")] == [0, edges]


def test_parts_of_a_text_in_blocks_are_switched_off(tmp_path):
    folder = tiny_models.gpt2(tmp_path / "gpt2")
    text = Text("0", "the cat sat on the mat and the dog sat on the cat")
    first = opened(Subject(Origin(model=str(folder), max_size=8), "self", text))
    read_whole, every = Subject(Origin(model=str(folder)), "self", text).attend()
    state = replace(first, layer=1, head=2, query=2)
    size = state.item.blocks[0]
    assert size > 1
    off = after(state, "x")
    at = HeadAt("causal", "1", 2)
    _, said = read_whole.change(Intervention((at,)), maps=False)
    assert (off.effect, off.message) == (said, "")
    assert off.base is state.base  # maps of blocks stay
    assert "╳" in "".join(map(plain, screen(off)))
    token = after(state, "t")
    assert [one.position for one in token.off.tokens] == list(range(2 * size, 3 * size))
    inside = after(state, "z")
    assert inside.window
    start = inside.item.starts[0]
    here = slice(start, start + size)
    expected = every.main.weights[1, 2, here, here]
    np.testing.assert_allclose(inside.weights, expected, atol=1e-6)
    link = after(replace(inside, query=1, key=0, matrix=True), "x")
    (cut,) = link.off.links
    assert (cut.query, cut.key) == (start + 1, start)
    assert after(replace(inside, query=1, key=0), "w").page
    pieces = after(begin(every, subject=read_whole), "p")
    assert "sum" in after(replace(pieces, query=0, key=0), "w").page  # one key is seen
    assert after(inside, "p").words != inside.words


def test_options_say_what_is_seen_first(live, monkeypatch):
    monkeypatch.setenv("COLORFGBG", "15;0")
    state = live
    for name in ("3", "2.3"):
        first = as_chosen(state, Options(choice=Choice(head=name)))
        assert first.name.endswith(".3")
    assert first.name == "2.3"
    monkeypatch.setenv("COLORFGBG", "15;0")
    choice = Choice(head="1.4", special="drop")
    first = as_chosen(state, Options(choice=choice))
    assert (first.name, first.lens, first.special, first.words) == ("1.4", "raw", False, True)
    line = command_of(first)
    assert line.endswith("--stream cross --head 1.4 --special drop --words")
    assert attnviz_of(*shlex.split(line)[1:], "-q", "-f", "none").status == 0
    saved_maps = begin(saved(), subject=Subject(saved=("render", "m.npz")))
    reduced = as_chosen(saved_maps, Options(choice=Choice(lens="rollout")))
    assert command_of(reduced).startswith("attnviz render m.npz --lens rollout --layer ")
    with pytest.raises(UsageError, match=r"--head 9\.9 does not exist"):
        as_chosen(state, Options(choice=Choice(head="9.9")))


def test_a_picture_is_looked_at_patch_by_patch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = str(Path(__file__).parents[3] / "sample_inputs" / "shapes.png")
    state = opened(Subject(Origin(), "picture", Text("0", file)))
    state = after(state, "enter", "down", "right")
    assert save(state, "a") == "wrote a.png and a.json"
    assert "patch 1,1 looks at patch" in plain(screen(state)[1])
    line = command_of(state)
    assert line.endswith(f"--head {state.name} --patch 1,1")
    assert attnviz_of(*shlex.split(line)[1:], "-q", "-f", "none").status == 0
    off = after(replace(state, matrix=False), "x")
    assert off.effect.startswith("1 head off")


def test_odd_tokens_and_shapes():
    state = replace(begin(saved(layers=5, heads=7)), layer=4, head=6, query=3, key=3)
    small = saved(["x"], layers=1, heads=1)
    new = state.see(raw=small, base=small, key=None)
    assert (new.layer, new.head, new.query, new.key) == (0, 0, 0, None)
    assert len(screen(new)) == 24
    state = replace(begin(saved(["日本語", "b", "é", "d"])), size=(100, 24))
    lines = [plain(line) for line in screen(state)]
    bars = {cell_len(line.partition("│")[0]) for line in lines if "│" in line}
    assert len(bars) == 1


REVIEWED = Path(__file__).with_name("screens.txt")


def reviewed_screens() -> str:
    """Screens without colours, as text: `python -m tests.features.browse.test_screens` writes."""
    texts = []
    for (name, keys), size in itertools.product(
        [
            ("text", "n"),
            ("text", "enter,right"),
            ("pair", "tab"),
            ("picture", "enter,down"),
        ],
        [(80, 24), (60, 20), (110, 30)],
    ):
        state = after(replace(SCREENS[name](), size=size, colors=None), *keys.split(","))
        lines = [plain(line).rstrip() for line in screen(state)]
        texts += [f"=== {name}, {keys}, {size[0]} × {size[1]}", *lines]
    return "\n".join(texts) + "\n"


def test_screens_are_as_reviewed():
    assert reviewed_screens() == REVIEWED.read_text("utf-8")


if __name__ == "__main__":
    REVIEWED.write_text(reviewed_screens(), "utf-8")


@pytest.mark.parametrize("width", [24, 40, 80])
def test_columns_of_numbers_fit_their_room(width):
    state = begin(
        saved(["antidisestablishmentarianism", *["the", "cat", "sat", "on", "the", "mat", "today"]])
    )
    lines = [plain(line) for line in numbers(state, 8, width)]
    assert max(map(cell_len, lines)) <= width
    assert len(lines) == 8
