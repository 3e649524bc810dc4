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
from attnviz.features.browse.ask import Asker
from attnviz.features.browse.command import first_answer, first_state
from attnviz.features.browse.draw import heads as draw_heads
from attnviz.features.browse.draw import matrix as draw_matrix
from attnviz.features.browse.draw import plain, screen
from attnviz.features.browse.keys import KEYS, STEPS, change_of, press, save, touch, write
from attnviz.features.browse.state import State, answer, begin, rank_heads, same_place
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
            assert {(span.ink, span.ground) for line in lines for span in line} == {(None, None)}


@pytest.mark.parametrize("name", some_slow("text", "pair", "picture"))
def test_every_key_leads_to_a_screen(name):
    keys = [*STEPS, "up", "down", "left", "right", "tab", "shift+tab", "home", "end", "pageup"]
    for first, key in itertools.product(("", "enter", "p", "s"), keys):
        state = SCREENS[name]()
        for one in filter(None, (first, key, "down", "right")):
            state, _ = press(state, one, one if len(one) == 1 else None)
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
                for shift in {0, max(len(span.text) - 1, 0)}:
                    after, _ = touch(state, span.act, shift)
                    assert 0 <= after.aim < len(after.item.key_tokens), span
                    assert 0 <= after.query < len(after.item.query_tokens), span


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
    header = plain(draw_matrix(state, 20, 60)[0])
    assert f" w{key} " in f"{header.replace('›', ' ').replace('‹', ' ')} "
    assert ("‹" in header, "›" in header) == (key > 0, key < 39)


def test_arrows_move_over_heads_and_in_the_matrix_over_links():
    state = replace(begin(saved()), layer=0, head=0, query=0)
    assert (press(state, "down")[0].layer, press(state, "right")[0].head) == (1, 1)
    assert press(press(state, "up")[0], "left")[0].layer == 0
    inside = replace(press(state, "enter")[0], key=1)
    assert (press(inside, "down")[0].query, press(inside, "right")[0].key) == (1, 2)
    assert press(press(inside, "right")[0], "escape")[0].matrix is False
    assert [press(state, key)[0].query for key in ("tab", "shift+tab", "end")] == [1, 3, 3]


def test_next_goes_through_the_heads_by_what_they_say():
    state = begin(saved([*"abcdefg"], layers=3, heads=2))
    order = rank_heads(state)
    assert sorted(order) == [(layer, head) for layer in range(3) for head in range(2)]
    seen = []
    for key in "Nnnnnn":
        state, _ = press(state, key, key)
        seen.append((state.layer, state.head))
    assert seen == order
    assert press(state, "n", "n")[0].message.startswith("head 1 of 6")


def test_saved_maps_say_why_nothing_can_be_asked():
    for key in "/xtw":
        state, request = press(begin(saved()), key, key)
        assert request is None
        assert "attnviz browse TEXT --model NAME" in state.message


def test_places_stay_at_their_tokens():
    pieces = [Token("[CLS]", special=True), Token("play", 0, 4), Token("##ing", 4, 7)]
    words = [Token("playing", 0, 7)]
    assert [same_place(pieces, at, words) for at in range(3)] == [0, 0, 0]
    assert same_place(words, 0, pieces) == 1


def test_every_key_of_the_list_is_known():
    names = {"tab", "↑↓", "←→", "enter"}
    assert {key for key, _, _ in KEYS} - names <= {*STEPS}


def test_the_documented_keys_are_these():
    page = (Path(__file__).parents[3] / "docs" / "browse.md").read_text("utf-8")
    table = page.partition("|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == [f"| {key} | {does} |" for key, _, does in KEYS]


@pytest.fixture(scope="module")
def live():
    asker = Asker(attnviz.attend("a").again.origin, "cross", Text("0", "The red car is fast.", ""))
    asker.text = Text("0", "The red car is fast.", "La voiture rouge est rapide.")
    attention = asker.attend()
    return asker, begin(attention, live=True)


def ask(asker: Asker, state: State, *keys: str) -> State:
    """The state after keys, whose requests are answered at once."""
    for key in keys:
        state, request = press(state, key, key if len(key) == 1 else None)
        if callable(request):
            state = change_of(request, asker)(state)
    return state


def test_switching_off_shows_what_ablate_measures(live):
    asker, state = live
    off = ask(asker, state, "x")
    assert off.effect.startswith("1 head off: log p of the output")
    found = attnviz.ablate(*asker.texts.values(), heads=[state.name]).value.effects[0]
    shown = off.effect.partition("output ")[2].partition(" ·")[0].replace("−", "-")
    assert float(shown) == pytest.approx(-found.effect, rel=0.05)
    assert "╳" in "".join(map(plain, screen(off)))
    on = ask(asker, off, "x")
    assert (on.effect, on.off) == ("", Intervention())
    np.testing.assert_array_equal(on.base.weights, state.raw.weights)
    assert ask(asker, off, "X").off == Intervention()


def test_a_link_and_a_token_can_be_off(live):
    asker, state = live
    link = ask(asker, state, "enter", "x")
    assert link.effect.startswith(f"{len(link.off.links)} link")
    at = link.off.links[0]
    changed = link.base.map_of(at.stream)
    layer = changed.layers.index(at.layer)
    assert changed.weights[layer, at.head, at.query, at.key] == 0
    token = ask(asker, state, "t")
    assert token.effect.startswith(f"{len(token.off.tokens)} token")


def test_why_lenses_and_another_text(live):
    asker, state = live
    why = ask(asker, state, "w")
    assert any("why there" in line for line in why.page)
    lens = ask(asker, state, "l")
    assert lens.lens != "raw"
    other = change_of(write(("The red car is fast!", "La voiture est rapide.")), asker)(state)
    assert other.seen.source == "The red car is fast!"
    assert [*asker.texts.values()] == ["The red car is fast!", "La voiture est rapide."]
    change_of(write(("The red car is fast.", "La voiture rouge est rapide.")), asker)


def test_what_is_seen_is_saved_and_printed_by_a_command(live, tmp_path, monkeypatch):
    asker, state = live
    monkeypatch.chdir(tmp_path)
    state = ask(asker, state, "enter")
    state = change_of(save(state, ("a",)), asker)(state)
    assert state.message == "wrote a.png and a.json"
    assert attnviz.load("a.json")[0].weights.shape[:2] == (1, 1)
    said = asker.command(state)
    assert said.startswith("attnviz cross 'The red car is fast.' 'La voiture rouge")
    assert f"--head {state.name}" in said
    assert "--words" in said


def test_a_record_is_found_by_its_id_or_its_number():
    texts = [Text("7", "a"), BadText("b", InputError("broken")), Text("1", "c")]
    asker = Asker(records=lambda: iter(texts))
    assert [asker.find(record) for record in (None, "7", "0", "1", "2")] == [
        *(texts[0], texts[0], texts[0], texts[2], texts[2])
    ]
    for record, error in (("d", "no text d"), ("x", "no text x")):
        with pytest.raises(InputError, match=error):
            asker.find(record)


def test_several_texts_are_gone_through_forth_and_back(live):
    texts = [Text("a", "Red."), BadText("b", InputError("broken")), Text("c", "The car.")]
    asker = Asker(live[0].origin, "self", records=lambda: iter(texts))
    first = asker.answer_to(asker.find(None))
    state = begin(first, live=True)
    assert ask(asker, state, "[").message == "there is no text before this one"
    broken = ask(asker, state, "]")
    assert (broken.message, broken.seen.text) == ("broken", "Red.")
    last = ask(asker, broken, "]")
    assert (last.message, last.seen.text) == ("text 2", "The car.")
    assert ask(asker, last, "]").message == "there is no text behind this one"
    np.testing.assert_array_equal(ask(asker, last, "[", "[").raw.weights, first.weights)


@pytest.mark.parametrize("way", ["file", "stdin", "stdin as a file", "stdin with a target"])
def test_texts_are_gone_through_however_they_come(way, tmp_path, monkeypatch):
    file, lines = tmp_path / "t.txt", "a cat\na dog\nthe car\n"
    file.write_text(lines, "utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    target = "une voiture" if "target" in way else None
    names = {"file": (None, None, str(file)), "stdin as a file": (None, None, "-")}
    asker, attention = first_answer(*names.get(way, ("-", target, None)), "1", Options())
    state = begin(attention, live=True)
    monkeypatch.setattr("sys.stdin", None)  # by then it is the terminal
    states = [ask(asker, state, *keys.split()) for keys in ("]", "[", "[", "] ]")]
    seen = [one.seen.source or one.seen.text for one in states]
    assert (seen, asker.text.target) == (["the car", "a dog", "a cat", "the car"], target)
    assert asker.kind == ("cross" if target else "self")


def test_several_saved_maps_are_gone_through_and_the_command_names_each(tmp_path, monkeypatch):
    file = tmp_path / "m.npz"
    attnviz_of("self", "-i", "-", "-o", file, "-f", "none", stdin=b"a cat\na dog\nthe car\n")
    asker, attention = first_answer(str(file), None, None, "1", Options(choice=Choice()))
    state = begin(attention)
    assert attention.text == "a dog"
    assert ask(asker, state, "]").seen.text == "the car"
    assert asker.command(state).startswith(f"attnviz render {file} --record 2 ")
    assert ask(asker, state, "[", "[").seen.text == "a cat"
    assert asker.command(state).startswith(f"attnviz render {file} --head ")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    asker, attention = first_answer("-", None, None, None, Options(choice=Choice()))
    assert ask(asker, begin(attention), "]").seen.text == "a dog"
    assert asker.command(begin(attention)) == ""


def test_heads_that_share_keys_and_values_stand_between_lines():
    sizes = {"self": {"0": 1, "1": 2}}
    state = begin(replace(saved(heads=4), group_sizes=sizes))
    for layer, head, edges in ((0, 3, 1), (1, 3, 1), (1, 1, 0), (1, 2, 0)):
        shown = replace(state, layer=layer, head=head, size=(110, 24))  # a head's own marks win
        lines = list(map(plain, draw_heads(shown, 20, 60)))
        assert ("in groups of 2" in plain(screen(shown)[0])) == (layer == 1)
        assert [line.count("│") for line in lines if line[:1] in ("0", "1")] == [0, edges]


def test_parts_of_a_text_in_blocks_are_switched_off_and_told(tmp_path):
    folder = tiny_models.gpt2(tmp_path / "gpt2")
    text = Text("0", "the cat sat on the mat and the dog sat on the cat")
    asker = Asker(Origin(model=str(folder), max_size=8), "self", text)
    whole = Asker(Origin(model=str(folder)), "self", text)
    plain_maps = whole.attend().main
    state = replace(begin(asker.attend(), live=True), layer=1, head=2, query=2)
    size = state.item.blocks[0]
    assert size > 1
    off = ask(asker, state, "x")
    at = HeadAt("causal", "1", 2)
    _, said = whole.change(Intervention((at,)), maps=False)
    assert (off.effect, off.message) == (said, "")
    assert off.base is state.base  # maps of blocks stay
    assert "╳" in "".join(map(plain, screen(off)))
    token = ask(asker, state, "t")
    assert [one.position for one in token.off.tokens] == list(range(2 * size, 3 * size))
    inside = ask(asker, state, "z")
    assert inside.window
    start = inside.item.starts[0]
    here = slice(start, start + size)
    expected = plain_maps.weights[1, 2, here, here]
    np.testing.assert_allclose(inside.weights, expected, atol=1e-6)
    link = ask(asker, replace(inside, query=1, key=0, matrix=True), "x")
    (cut,) = link.off.links
    assert (cut.query, cut.key) == (start + 1, start)
    assert ask(asker, replace(inside, query=1, key=0), "w").page
    assert ask(asker, inside, "p").words != inside.words


def test_a_head_alone_is_that_of_the_layer_that_is_seen(live, monkeypatch):
    monkeypatch.setenv("COLORFGBG", "15;0")
    asker, state = live
    for name in ("3", "2.3"):
        first = first_state(state.raw, asker, Options(choice=Choice(head=name)))
        assert first.name.endswith(".3")
    assert first.name == "2.3"


def test_options_say_what_is_seen_first_and_the_command_says_them(live, monkeypatch):
    monkeypatch.setenv("COLORFGBG", "15;0")
    asker, state = live
    choice = Choice(head="1.4", special="drop")
    first = first_state(state.raw, asker, Options(choice=choice))
    assert (first.name, first.lens, first.special, first.words) == ("1.4", "raw", False, True)
    line = asker.command(first)
    assert line.endswith("--stream cross --head 1.4 --special drop --words")
    assert attnviz_of(*shlex.split(line)[1:], "-q", "-f", "none").status == 0
    reduced = first_state(saved(), Asker(), Options(choice=Choice(lens="rollout")))
    assert (
        Asker(saved=("render", "m.npz"))
        .command(reduced)
        .startswith("attnviz render m.npz --lens rollout --layer ")
    )
    with pytest.raises(UsageError, match=r"--head 9\.9 does not exist"):
        first_state(state.raw, asker, Options(choice=Choice(head="9.9")))


def test_a_picture_is_looked_at_patch_by_patch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = str(Path(__file__).parents[3] / "sample_inputs" / "shapes.png")
    asker = Asker(Origin(), "picture", Text("0", file))
    attention = asker.attend()
    state = begin(attention, live=True, pictures=asker.pixels(attention))
    state = ask(asker, state, "enter", "down", "right")
    state = change_of(save(state, ("a",)), asker)(state)
    assert "patch 1,1 looks at patch" in plain(screen(state)[1])
    assert state.message == "wrote a.png and a.json"
    line = asker.command(state)
    assert line.endswith(f"--head {state.name} --patch 1,1")
    assert attnviz_of(*shlex.split(line)[1:], "-q", "-f", "none").status == 0
    off = ask(asker, replace(state, matrix=False), "x")
    assert off.effect.startswith("1 head off")


def test_an_answer_of_another_shape_keeps_the_screen_whole():
    state = replace(begin(saved(layers=5, heads=7)), layer=4, head=6, query=3, key=3)
    after = answer(state, saved(["x"], layers=1, heads=1))
    assert (after.layer, after.head, after.query, after.key) == (0, 0, 0, None)
    assert len(screen(after)) == 24


def test_wide_tokens_keep_their_columns():
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
        state = replace(SCREENS[name](), size=size, colors=None)
        for key in keys.split(","):
            state, _ = press(state, key, key if len(key) == 1 else None)
        lines = [plain(line).rstrip() for line in screen(state)]
        texts += [f"=== {name}, {keys}, {size[0]} × {size[1]}", *lines]
    return "\n".join(texts) + "\n"


def test_screens_are_as_reviewed():
    assert reviewed_screens() == REVIEWED.read_text("utf-8")


if __name__ == "__main__":
    REVIEWED.write_text(reviewed_screens(), "utf-8")
