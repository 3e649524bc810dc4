"""Random command lines, drawn from the tables that the program itself is made of.

A new command, option, format, mechanism, measure or lens is fuzzed without being named here: what
an option may be follows from its type, its choices and the word that stands for its value.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st

from attnviz.cli import app
from attnviz.commands.command import OUTPUT
from attnviz.core.registry import COMMANDS, FORMATS, LENSES, MECHANISMS, parse_mechanism
from attnviz.features.lessons import LESSONS
from attnviz.renderers import PICTURE_SUFFIXES
from fuzz import checkpoints, damage, world
from fuzz.run import Case
from tests.samples import ODD

HOSTILE = (
    *(word for word in ODD if "\x00" not in word and word != "\n"),
    "\udcff\udc80", "\udced\udca0\udc80", "a" * 300, "é" * 200, "x" * 1000, " ", "", "\n", "-",
    "--", "---",
    "-1", "None", "null", "NaN", "%s", "{0}", "{{", "${HOME}", "~", "*", "[red]x[/red]", "[link=x]",
    "<script>alert(1)</script>", "</script>", "</style>", "]]>", "&amp;", "'; DROP", "\\",
    "\\u0041",
    "9" * 400, "9" * 5000, "²", "٣", "1e309", "0x10", "inf", "..", ".", "CON", "a|b", "||| b",
    "a ||| b",
    "\U0010ffff", "\ufffe", "\u0300", "\u0300" * 50, "ﷺ" * 8, "👍🏽", "\u200d", "ß", "ŉ", "İ",
)  # fmt: skip
"""Words that have broken a program somewhere; no shell can pass NUL."""
NUMBERS = (
    "0", "1", "2", "3", "5", "7", "16", "63", "64", "65", "1000", "-1", "4294967296",
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "1" + "0" * 30,
    "1.5", "1e3", "nan", "inf", "-0", "+1", "0_1", " 1", "", "٣", "9" * 5000,
)  # fmt: skip
SMALL = ("1", "2", "3", "4", "8", "0")
FLOATS = ("0", "0.01", "0.7", "1e-300", "1e300", "nan", "inf", "-1", "x", "")
WHICH = (
    "0", "1", "2", "last", "all", "0,1", "0-1", "1-0", "mean", "max", "-", ",", "0,,1", "9", "99",
    "0-99",
    "0-999999999", "0-99999999999999999999", "last-0", "0-last", "all,0", "00", "²", "٣", "-1",
    "9" * 5000,
)  # fmt: skip
SPANS = ("0-1", "1-1", "0", "3-1", "0-99", "-", "a-b", "0-99999999999999999999", "9" * 5000, "٣-٤")
PLACES = (
    *(f"out{suffix}" for suffix in PICTURE_SUFFIXES),
    *(f"out{entry.suffix}" for entry in FORMATS.values() if entry.suffix),
    "out.html", "OUT.JSONL", "sub/../out.png", "sub/out.json", "sub", "sub/", "none/out.json",
    "../up.json",
    "../../../top.csv", "out", "out.", ".json", "out.json.gz", "out.exe", "[b]out[/b].json",
    "o\nut.json",
    "\x1b[31mout.json", "o\u202eut.png", "\udcffout.json", "out%d.json", "-out.json",
    "o ut.jsonl", "~/x.json",
    "a" * 255 + ".json", "a" * 248 + ".jsonl", "a" * 236 + ".png", "a" * 220 + ".tsv",
    "/dev/null", "/dev/full",
    "old.jsonl", "old.png", "old-0.html", "old.html", "loop.json", "link.jsonl", "broken.json", "",
)  # fmt: skip
"""Where results may be sent; nothing that exists is to be changed but what is called old."""

words = st.one_of(
    st.sampled_from(("the", "cat", "sat", "on", "mat", "dog", "saw", ".", "a", "car", "La",
    "rouge")),
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), max_size=8),
)  # fmt: skip
plain_words = st.sampled_from(("the", "cat", "sat", "on", "mat", "dog", "car", ".", "le", "chat"))
odd_texts = st.lists(words, max_size=5).map(" ".join)
plain_texts = st.lists(plain_words, min_size=1, max_size=6).map(" ".join)
texts = plain_texts | odd_texts

HINTS = {
    "--weights": ("matrices", "saved", "matrices", "texts"),
    "--input": ("texts", "pairs", "texts", "others"),
    "--treebank": ("others", "texts"),
    "--score": ("others", "texts"),
    "--frequencies": ("others", "texts"),
    "--group": ("others", "texts"),
    "render": ("saved", "saved", "saved", "matrices", "others"),
    "compare": ("saved", "saved", "effects", "matrices"),
    "--reference": ("pairs", "texts"),
    "image": ("pictures", "pictures", "pictures", "texts"),
    "audio": ("recordings", "recordings", "texts"),
    "--times": ("recordings", "texts"),
    "align": ("pairs", "pairs", "texts", "others"),
    "steps": ("matrices", "matrices", "saved"),
}
"""Which kinds of files make sense where; elsewhere, and now and then here, any."""
RARE = {"--workers": 0.02, "--open": 0.3, "--generate": 0.3, "--engine": 0.1, "--follow": 0}
"""Options that cost a process, a browser or seconds, or never end: how often they stay."""
PICTURE_SHARE = 0.12
MODEL_SHARE = 0.12


class Draws:
    """A case in the making."""

    def __init__(self, draw: st.DrawFn, models: bool) -> None:
        self.draw, self.models = draw, models
        # A page is served until it is told to end, and a view in the terminal needs one.
        left_out = ("browse", "live", *(() if models else ("image", "audio", "watch")))
        self.commands = [name for name in COMMANDS if name not in left_out]
        self.files: dict[str, bytes | str | None] = {}
        self.stdin = b""

    def pick(self, items: Any) -> Any:
        """One of the values."""
        return self.draw(st.sampled_from(tuple(items)))

    def often(self, share: float) -> bool:
        """True with that probability."""
        return self.draw(st.integers(0, 99)) < 100 * share

    def file(self, kinds: tuple[str, ...], *, broken: float = 0.5) -> str:
        """The name of a file of a kind, whole or damaged."""
        kind = self.pick(kinds if not kinds or self.often(0.9) else tuple(world.KINDS))
        name = self.pick(sorted(world.files(kind)))
        data = world.files(kind)[name]
        if self.often(broken):
            data = damage.damage_file(self.draw, name, data)
        if self.often(0.03) and broken:
            name, data = f"{name}.gz", gzip.compress(data, mtime=0)
        if name in self.files and self.files[name] != data:
            name = f"b{name}"
        self.files[name] = data
        return name

    def text_file(self, name: str) -> str:
        """The name of a file of random texts."""
        lines = self.draw(
            st.lists(texts | odd_texts.map(lambda text: f"{text}\t{text}"), max_size=4)
        )
        data = "\n".join(lines).encode("utf-8", "surrogateescape")
        self.files[name] = data.replace(b"\x85", b"\0") if self.often(0.1) else data
        return name


@cache
def parameters(command: str) -> tuple[Any, ...]:
    """The arguments and options that typer knows of a command, as typer made them."""
    return tuple(app.build_command(command).params)


def is_argument(parameter: Any) -> bool:
    """False of an option."""
    return parameter.param_type_name == "argument"


def choices_of(parameter: Any) -> tuple[str, ...]:
    """The choices of an option; empty if it takes any text."""
    return tuple(getattr(parameter.type, "choices", None) or ())


def is_place(parameter: Any) -> bool:
    """True of an option that names a file to write."""
    panel = getattr(parameter, "rich_help_panel", "")
    return parameter.metavar in ("FILE", "PAGE|FOLDER") and (
        panel == OUTPUT or parameter.name == "on_error"
    )


def value_of(made: Draws, parameter: Any) -> str:
    """A value for an option, likely one that it takes."""
    if made.often(0.04):
        return made.draw(words)
    if choices := choices_of(parameter):
        return made.pick((*choices, *choices, *choices, *HOSTILE[:3], "jso", ""))
    if hasattr(parameter.type, "min"):
        whole = "Int" in type(parameter.type).__name__
        return made.pick((*SMALL * 4, *NUMBERS) if whole else FLOATS)
    name, metavar = parameter.opts[0], parameter.metavar or ""
    if is_place(parameter):
        return place(made, name)
    if metavar in ("FILE", "GOLD") or (name == "--group" and made.often(0.5)):
        return a_file(made, HINTS.get(name, tuple(world.KINDS)))
    return by_metavar(made, metavar)


def by_metavar(made: Draws, metavar: str) -> str:  # noqa: C901, PLR0911, PLR0912 - a row a word
    """A value that fits the option's METAVAR."""
    match metavar:
        case "WHICH":
            return str(made.pick(WHICH))
        case "A-B":
            return str(made.pick(SPANS))
        case "TEXT":
            return made.draw(texts)
        case "ID_OR_FOLDER" | "CONFIG_OR_FOLDER":
            return model(made)
        case "NAME":
            return str(made.pick((*MECHANISMS, *LENSES, *STREAMS, *LESSONS, "main", *HOSTILE[:4])))
        case "ROW,COLUMN" | "SIZE" | "N":
            return str(
                made.pick(("0,0", "3,3", "all", "0", "last", "32", "32x32", "0x0", "9,9", *NUMBERS))
            )
        case "ROWS|FILE":
            return str(made.pick(("1", "1 0 1", "10,01", "1 1;0 1", "mask.json", *HOSTILE[:3])))
        case "RULE":
            return str(made.pick((*KEPT, "h2o", "h2o:0", "x:2", "sinks:+", *HOSTILE[:3])))
        case "NAMES":
            return str(
                made.pick(
                    (
                        "id",
                        "schema,maps.weights",
                        "weight,id",
                        "head.layer",
                        "no.x",
                        ",",
                        *HOSTILE[:3],
                    )
                )
            )
        case "ROLES":
            return str(made.pick((*ROLES, *HOSTILE[:3])))
        case "ADDRESS":
            return "127.0.0.1:1"
        case "ID_OR_NUMBER" | "WHAT":
            return str(made.pick(("0", "1", "2", *PARTS, *NUMBERS[-6:])))
        case _:
            return made.draw(words | st.sampled_from(NUMBERS))


SLOW_LESSONS = ("linear", "training")
"""One measures time, one trains: seconds of it."""
ROLES = ("text=1", "text=text", "source=1,target=2", "id=2", "=", ",", "text=9")
KEPT = ("h2o:0.5", "sinks:1+recent:2", "tova:1", "snapkv:2,0.5", "random:3", "best:2", "window:2")
PARTS = ("the", "words", "sentences", "cat", "99", "next:cat", "a\udcff", "next:\udcff")
FIELDS = ("id", "schema,maps.weights", "weight,id", "head.layer", "no.x")
STREAMS = ("self", "encoder", "decoder", "cross", "causal", "a-to-b", "b-to-a")


def place(made: Draws, name: str) -> str:
    """A place for results, or an input, which must not become one."""
    if made.often(0.6):
        own = {"html": (".html",), "atlas": (".html",), "on-error": (".jsonl",)}
        suffixes = own.get(name[2:], ())
        if not suffixes and name not in ("--output", "-o"):
            suffixes = PICTURE_SUFFIXES
        if suffixes:
            return f"{name[2:]}{made.pick(suffixes)}"
        return str(made.pick([f"out{entry.suffix}" for entry in FORMATS.values() if entry.suffix]))
    named = [name for name in made.files if made.files[name] is not None]
    if named and made.often(0.2):
        return str(
            made.pick((named[0], f"./{named[0]}", f"sub/../{named[0]}", f"../work/{named[0]}"))
        )
    return str(made.pick(PLACES))


NO_FILES = (
    "missing.txt",
    "missing.npz",
    "sub",
    "",
    "a" * 300,
    "\udcff.txt",
    "/dev/null",
    "/dev/zero",
    "loop.json",
)


def a_file(made: Draws, kinds: tuple[str, ...]) -> str:
    """Something to read: a file, whole or damaged; stdin; nothing; a folder."""
    turn = made.draw(st.integers(0, 19))
    if turn < 14:
        return made.file(kinds)
    if turn < 16:
        suffix = made.pick((".txt", ".tsv", ".jsonl", ".csv", "", ".conllu", ".json"))
        return made.text_file(f"mine{suffix}")
    if turn == 16:
        return stdin(made, kinds)
    if turn == 17 and made.often(0.1):
        name = made.pick(sorted(world.bombs()))
        made.files[name] = world.bombs()[name]
        return str(name)
    return str(made.pick(NO_FILES))


def stdin(made: Draws, kinds: tuple[str, ...]) -> str:
    """A dash, with random bytes on stdin."""
    name = made.file(kinds)
    made.stdin = made.files.pop(name) or b""
    return "-"


def model(made: Draws) -> str:
    """A model: the shipped one, nothing, or a tiny folder, rarely whole."""
    if not (made.models and made.often(MODEL_SHARE)):
        return str(
            made.pick(
                (
                    *["pocket"] * 3,
                    "pocket-lm",
                    "pocket-vit",
                    "no",
                    "org/no",
                    "sub",
                    ".",
                    "",
                    *HOSTILE[:4],
                )
            )
        )
    kind = made.pick(world.MODELS)
    if made.often(0.4):
        return str(world.model(kind))
    files = checkpoints.hostile(made.draw, kind)
    made.files |= {f"{kind}-model/{name}": data for name, data in files.items()}
    return f"{kind}-model"


def argument(made: Draws, command: str, parameter: Any) -> list[str]:
    """The words of an argument."""
    if command == "lesson":
        named = [name for name in LESSONS if name not in SLOW_LESSONS or made.often(0.05)]
        return [made.pick((*named, *named, *named, *HOSTILE[:2]))]
    if command == "watch":  # no other program is run
        made.files["program.py"] = PROGRAM
        return [made.pick(("program.py", "program.py", "missing.py", "sub", "")), *made.draw(st.lists(words, max_size=2))]  # noqa: E501  # fmt: skip
    # `steps` and `compare` take sentences too.
    share = 0.55 if command in ("steps", "compare") else 0.9
    if command in HINTS and parameter.name in ("file", "a", "b") and made.often(share):
        return [a_file(made, HINTS[command])]
    if made.often(0.06):
        return [stdin(made, ("texts", "pairs"))]
    if command == "models":
        if made.models:
            cache_model(made)
        return [made.pick(("pocket", "pocket-lm", "x", *HOSTILE[:3]))] if made.often(0.4) else []
    count = made.draw(st.integers(1, 2)) if parameter.nargs == -1 else 1
    return [made.draw(texts) for _ in range(count)]


PROGRAM = b"""import torch
print('a program')
q = torch.ones(2, 2, 3, 4)
for _ in range(3):
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
"""
"""What is watched."""


def cache_model(made: Draws) -> None:
    """Fill the cache of models, with a folder of any name."""
    name = made.draw(words)[:60].strip(".\n") or "x"
    files = dict(world.model_files("bert"))
    place = f"hub/models--org--{name}".replace("/", "").replace("hub", "hub/", 1)
    made.files[f"{place}/refs/main"] = made.pick((b"abc", b"abc", b"", b"../..", b"\xff"))
    for file in ("config.json", "model.safetensors"):
        data = files[file]
        if file == "config.json" and made.often(0.5):
            data = damage.damage_file(made.draw, file, data)
        made.files[f"{place}/snapshots/abc/{file}"] = data


@st.composite
def wild(draw: st.DrawFn, models: bool = True) -> Case:
    """Any command with any arguments, options and files."""
    made = Draws(draw, models)
    command = made.pick((*made.commands, "self", "self", "render", "render", "cross"))
    known = parameters(command)
    groups: list[tuple[str, ...]] = []
    given: list[str] = []
    for parameter in filter(is_argument, known):
        if parameter.required or made.often(0.85):
            given += argument(made, command, parameter)
    options = [item for item in known if not is_argument(item)]
    count = draw(st.integers(0, 4))
    drawn = [made.pick(options) for _ in range(count)]
    if command in ("image", "audio") and made.often(0.8):
        drawn.append(next(item for item in options if item.name == "model"))
    for option in drawn:
        groups += option_words(made, option)
    if made.often(0.02) and command != "watch":
        groups.append((draw(words),))
    if made.often(0.01):
        groups.append(("--help",))
    # An argument that begins like an option is one, unless two dashes say otherwise.
    if any(word.startswith("-") and word != "-" for word in given) and made.often(0.7):
        given = ["--", *given]
        groups = [(command,), *groups, tuple(given)]
    else:
        groups = [(command, *given), *groups]
    columns = made.pick((80, 80, 20, 1, 300))
    return Case(safe(groups), {**ALREADY, **made.files}, made.stdin, columns)


ALREADY: Mapping[str, bytes | str | None] = {
    "sub": None,
    "old.jsonl": b"old\n",
    "old.png": b"old",
    "old.html": b"old",
    "old-0.html": b"somebody's own page",
    "loop.json": "loop.json",
    "link.jsonl": "old.jsonl",
    "broken.json": "none/out.json",
}
"""What lies in every folder; outputs of these names replace them, where they may."""


def safe(groups: list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Make each word one that a shell can pass and that leads to no place outside the folder."""

    def mend(word: str) -> str:
        word = word.replace("\0", "0").encode("utf-8", "replace" if word.isprintable() else "surrogateescape").decode("utf-8", "surrogateescape")  # noqa: E501  # fmt: skip
        known = word.startswith(("/dev/", str(world.home())))
        return word if known or not word.startswith("/") else f".{word}"

    (command, *given), *options = groups or [("",)]
    if command == "watch" and given:  # what stands behind a program is the program's
        groups = [(command,), *options, ("--", *given)]
    return tuple(tuple(map(mend, group)) for group in groups)


def option_words(made: Draws, option: Any) -> list[tuple[str, ...]]:
    """An option as it is typed, with its value; nothing where it would cost too much."""
    name = made.pick(option.opts)
    if not made.often(RARE.get(option.opts[0], 1)):
        return []
    if getattr(option, "is_flag", False):
        return [(name,)]
    value = value_of(made, option)
    if option.opts[0] == "--workers":
        value = made.pick(("2", "2", "1", "0"))
    if option.opts[0] == "--engine" and value == "ray":
        value = "local"
    if value.lower().endswith(PICTURE_SUFFIXES) and not made.often(PICTURE_SHARE):
        return []
    return [(name, value)]


# What must succeed --------------------------------------------------------------------------------

PLAIN: dict[str, tuple[tuple[str, ...], ...]] = {
    "--layer": (("0",), ("last",), ("all",)),
    "--head": (("0",), ("1",), ("last",), ("all",), ("0-1",)),
    "--reduce": (("mean",), ("max",), ("none",)),
    "--special": (("keep",), ("drop",), ("renormalise",)),
    "--quiet": ((),),
    "--errors": (("json",), ("text",)),
    "--verbose": ((),),
    "--words": ((),),
    "--group": (("words",), ("sentences",)),
    "--top": (("1",), ("5",)),
    "--html": (("page.html",),),
    "--labels": (("A",),),
    "--on-error": (("skip",), ("stop",)),
    "--no-repeat": ((),),
}
"""Options that no command which takes them may refuse, with values; and all whose choices are
names of a table that every run can take."""
CHOSEN = ("--sort", "--show", "--device")
COSTLY = ("--heatmap", "--grid", "--picture")


@st.composite
def valid(draw: st.DrawFn, models: bool = True) -> Case:
    """A command line that must succeed."""
    made = Draws(draw, models)
    command = made.pick((*made.commands, "self", "render", "cross"))
    groups = [tuple(base(made, command))]
    if command == "watch":  # which refuses to run for nothing
        groups.append(("--html", "seen.html"))
    known = {item.opts[0]: item for item in parameters(command) if not is_argument(item)}
    taken = [name for name in PLAIN if name in known and not clashes(groups[0], name)]
    for name in dict.fromkeys(
        made.pick(taken) for _ in range(draw(st.integers(0, 2)) if taken else 0)
    ):
        if name in ("--words", "--group") and any(
            group[0] in ("--words", "--group") for group in groups
        ):
            continue
        groups.append((name, *made.pick(PLAIN[name])))
    for name in CHOSEN:
        refused = (command == "heads" and name == "--sort") or clashes(groups[0], name)
        if name in known and made.often(0.1) and not refused:
            needy = ("cuda", "mps", "effect", "light", "torch", "spread")
            wanted = [word for word in choices_of(known[name]) if not word.startswith(needy)]
            groups.append((name, made.pick(wanted)) if wanted else (name,))
    pictured = [name for name in COSTLY if name in known and not clashes(groups[0], name)]
    if pictured and made.often(0.02):
        groups.append((made.pick(pictured), f"picture{made.pick(PICTURE_SUFFIXES)}"))
    named = choices_of(known["--format"]) if "--format" in known else ("npz", "json", "tsv")
    formats = [name for name in named if name not in special_formats(groups[0])]
    if "--format" in known and made.often(0.5):
        groups.append(("-f", made.pick(formats)))
    if made.often(0.25) and not clashes(groups[0], "--output"):
        groups.append(
            ("-o", f"out{made.pick(sorted({FORMATS[name].suffix for name in formats} - {''}))}")
        )
    return Case(safe(groups), {**ALREADY, **made.files}, made.stdin, made.pick((80, 120, 40)), True)


def special_formats(given: tuple[str, ...]) -> tuple[str, ...]:
    """Formats that only some of a command's data can be written in."""
    special = {"cross": ("pharaoh",), "align": ("table",), "audio": ("textgrid", "vtt")}.get(
        given[0], ()
    )
    return ("npz",) if {"e.npz", "--treebank"} & {*given} else special


FEW = {"--treebank": ("--layer", "--head", "--special"), "e.npz": ("--top",)}
"""What takes few of a command's options, and which."""


def clashes(given: tuple[str, ...], option: str) -> bool:
    """Whether an option is about something else than what the words ask for."""
    for special, allowed in FEW.items():
        if special in given:
            return option not in ("--quiet", "--verbose", "--output", *allowed)
    needs = {"explain": ("--picture", "--show"), "steps": ("--picture",)}  # which not all can draw
    of_output = "--picture --show --of --resample --pattern --temperature --control-depth --seed"
    needs["sources"] = (*of_output.split(), "--generate")
    pictured = option in needs.get(given[0], ())
    if option in ("--labels", "--contacts", "--wiring"):
        return True
    if option == "--head" and "--mechanism" in given and given[0] != "steps":
        return parse_mechanism(given[given.index("--mechanism") + 1]).heads != 1
    if option in ("--layer", "--head", "--special", "--group", "--words"):
        aside = (
            "sources",
            "compare",
            "image",
            "align",
            "render",
            "ablate",
            "steps",
            "why",
            "explain",
        )
        loose = any(word.startswith("sigmoid") for word in given) and option in (
            "--group",
            "--words",
        )
        return given[0] in aside or "--weights" in given or loose
    if option in ("--heatmap", "--grid", "--html", "--reduce"):
        # A page of compare is one of a training run.
        return given[0] in ("image", "ablate") or (given[0], option) == ("compare", "--html")
    other = (
        "--link",
        "--against",
        "--contrast",
        "--mean",
        "--layers",
        "--weights-only",
        "--target",
    )
    return pictured or (option in other and given[0] in ("why", "explain", "heads"))


def base(made: Draws, command: str) -> list[str]:  # noqa: C901, PLR0911, PLR0912 - rows
    """A command with all that it needs, undamaged."""

    def whole(*kinds: str, only: tuple[str, ...] = ()) -> str:
        kind = made.pick(kinds)
        names = [name for name in sorted(world.files(kind)) if not only or name in only]
        name = made.pick(names)
        made.files[name] = world.files(kind)[name]
        return str(name)

    match command:
        case "self" | "heads":
            own = [name for name, row in MECHANISMS.items() if "self" in row.commands]
            # Measures are of shares, not of weights with signs.
            rows = {name: MECHANISMS[name] for name in own}
            several = [name for name, row in rows.items() if row.many_heads and not row.signed]
            mechanism = made.pick(several if command != "self" else own)
            heads = 1 + MECHANISMS[mechanism].many_heads
            origins: list[list[str]] = [[], ["--mechanism", f"{mechanism}:heads={heads},size=8"]]
            if made.models and made.often(0.08):
                origins = [["--model", str(world.model(made.pick(("bert", "gpt2"))))]]
            origin = made.pick(origins)
            if command == "heads" and made.often(0.1):
                return [command, "--treebank", whole("others", only=("r.conllu",)), *origin]
            if made.often(0.3):
                return [command, "--input", whole("texts"), *origin]
            return [command, made.draw(plain_texts), *origin]
        case "cross":
            if made.often(0.3):
                return [command, "--input", whole("pairs")]
            co = ["--mechanism", "co"] if made.often(0.2) else []
            return [command, made.draw(plain_texts), made.draw(plain_texts), *co]
        case "match":
            document = ["--input", whole("texts")] if made.often(0.3) else [made.draw(plain_texts)]
            return [command, made.draw(plain_texts), *document, "-m", str(world.model("bert"))]
        case "ablate":
            what = made.pick((["--head", "0.0"], ["--each", "layers"], ["--token", "the"]))
            if made.often(0.3):
                return [command, "--input", whole("pairs"), "--each", "layers"]
            return [command, "the " + made.pick(("cat", "dog")), *what]
        case "image":
            return [command, whole("pictures"), "--model", str(world.model("vit"))]
        case "audio":
            file = whole("recordings", only=("s.wav", "s.flac"))
            return [command, file, "--text", "the cat", "--model", str(world.model("whisper"))]
        case "why" | "explain":
            return [command, made.draw(plain_texts)]
        case "cache":
            return [command, made.draw(plain_texts) + " here", "--keep", made.pick(KEPT)]
        case "sources":
            made.files["notes.txt"] = b"the red car\n\nthe cat sat\n"
            return [command, made.draw(plain_texts), "--context", "notes.txt", "--answer", "a cat"]
        case "compare" if made.often(0.2):
            made.files["step-00000100.npz"] = world.files("saved")["m.npz"]
            return [command, "."]
        case "compare":
            if made.often(0.2):
                return [
                    command,
                    whole("effects", only=("e.npz",)),
                    whole("effects", only=("f.json",)),
                ]
            return [command, "the cat sat", made.draw(plain_texts) + " here"]
        case "align":
            return [command, whole("pairs")]
        case "steps":
            given = ("given.npz", "given.json", "given.safetensors")
            solo = [name for name, row in MECHANISMS.items() if "self" in row.commands]
            drawn = ["--mechanism", made.pick(solo), "--padding", "1"]
            text = "the " + made.draw(plain_texts)
            ways = (None, [text, *drawn], [text, "--model", "pocket"], ["--example", "naive"])
            return [command, *(made.pick(ways) or [whole("matrices", only=given)])]
        case "lesson":
            return [command, made.pick([name for name in LESSONS if name not in SLOW_LESSONS])]
        case "render":
            return [command, whole("saved")]
        case "watch":
            made.files["program.py"] = PROGRAM
            return [command, "program.py"]
        case _:
            return [command]


@st.composite
def bend(draw: st.DrawFn, models: bool = True) -> Case:
    """A command line with one fault: in a file, an option, a text or a model."""
    made = Draws(draw, models)
    command = made.pick((*made.commands, "render", "render", "render", "compare", "self", "heads"))
    given, act = base(made, command), draw(st.integers(0, 9))
    known = [item for item in parameters(command) if not is_argument(item)]
    groups = [tuple(given)]
    if act < 5:
        groups = [tuple(bent_file(made, command, given))]
        if made.often(0.3) and command != "watch":
            groups.append(
                ("-f", made.pick(choices_of(next(item for item in known if item.name == "format"))))
            )
        elif made.often(0.3):
            groups += option_words(made, made.pick(known))
    elif act < 8:
        for _ in range(draw(st.integers(1, 2))):
            groups += option_words(made, made.pick(known))
    elif act == 8:
        place = draw(st.integers(1, len(given) - 1)) if len(given) > 1 else 0
        groups = [
            tuple(draw(odd_texts) if n == place and place else word for n, word in enumerate(given))
        ]
    elif models and any(item.name == "model" for item in known) and "--mechanism" not in given:
        own = {"image": "vit", "audio": "whisper"}
        kind = own.get(command) or made.pick(("bert", "gpt2", "gpt2", "t5"))
        chats = kind == "gpt2" and any(item.name == "chat" for item in known) and made.often(0.5)
        files = checkpoints.hostile(draw, kind, template=chats)
        made.files |= {f"{kind}-model/{name}": data for name, data in files.items()}
        words = given[:-2] if command in own else given
        groups = [(*words, "--model", f"{kind}-model")]
        if chats:
            groups += [("--chat",)] + [("--generate", "3")] * made.often(0.3)
    columns = made.pick((80, 20, 200))
    return Case(safe(groups), {**ALREADY, **made.files}, made.stdin, columns)


def bent_file(made: Draws, command: str, given: list[str]) -> list[str]:
    """The words with one of the files damaged, or a damaged one in place of a text."""
    names = [name for name in given if name in made.files]
    if command == "watch":  # nor is it damaged
        return given
    if command == "compare":
        kind, names = made.pick((("saved", ["m.npz", "m.json"]), ("effects", ["e.npz", "f.json"])))
        given = ["compare", *names]
        made.files |= {name: world.files(kind)[name] for name in names}
    elif command in ("self", "heads") and not names:
        name = made.file(("saved", "matrices"), broken=1)
        return [command, "--weights", name]
    for name in names[:1] if made.often(0.5) else names[-1:]:
        made.files[name] = damage.damage_file(made.draw, name, made.files[name] or b"")
    if not names:
        return [*given, "-"] if command == "align" else given
    if len(names) == 1 and made.often(0.1) and command in ("render", "align"):
        made.stdin = made.files.pop(names[0]) or b""
        return ["-" if word == names[0] else word for word in given]
    return given


def cases(*, models: bool = True) -> st.SearchStrategy[Case]:
    """Command lines: three in ten must succeed, four would but for one thing, three are wild.

    Without models none loads torch.
    """
    kinds = [*[valid] * 3, *[bend] * 4, *[wild] * 3]
    drawn = [kind(models) for kind in kinds]
    return st.integers(0, len(drawn) - 1).flatmap(drawn.__getitem__)
