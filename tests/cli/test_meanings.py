"""One name of an option means one thing in every command."""

from collections import defaultdict

import pytest

from attnviz.cli.app import build_command
from attnviz.commands.command import OPTIONS
from attnviz.core.registry import COMMANDS

SHARED = {name for option in OPTIONS.values() for name in option.names}
"""Declared once: their help names the formats, suffixes or pictures of each command."""
OTHERS = {
    "--against": "what a link or an answer is compared with, and a side of an alignment",
    "--atlas": "the page that heads writes, to which the page of a text links",
    "--group": "sources leaves out what it groups",
    "--head": "ablate switches off the heads that others show, and why asks about one",
    "--input": "cache takes several, a kind of text each",
    "--layer": "ablate switches off the layers that others show",
    "--lens": "image has no place for all lenses side by side",
    "--link": "ablate cuts the link that why explains",
    "--mechanism": "steps works out any, of one head of 4 features",
    "--output": "live has one form, a page",
    "--reference": "texts that replace a head, once by their mean alone",
    "--rows": "the positions of the lens of layers; elsewhere rows of a map",
    "--score": "explain asks what carries a pair's score; elsewhere correct links",
    "--text": "the words beside a picture or in a recording; elsewhere the sentence itself",
    "--token": "ablate hides the token whose attention others show",
    "--top": "how many of what a command ranks",
    "--window": "a lesson's window of positions",
}
"""Names with more than one help text, each with the reason."""


def meanings(short: bool = False) -> dict[str, dict[tuple[str, str], list[str]]]:
    """What each name says in the commands that have it."""
    by_name: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for command in COMMANDS:
        for item in build_command(command).params:
            if item.param_type_name == "option":
                names = [one for one in item.opts if one.startswith("--") != short]
                for name in names:
                    kind = str(item.metavar or item.type.name)
                    by_name[name][item.help or "", kind].append(command)
    return by_name


def test_a_name_says_one_thing_over_all_commands():
    several = {
        name: {tuple(where) for where in texts.values()}
        for name, texts in meanings().items()
        if len(texts) > 1 and name not in ("--format", "--picture")
    }
    assert {*several} <= {*OTHERS}, several
    assert {"--format", "--picture"} < SHARED


@pytest.mark.parametrize("name", ["--by", "--target", "--times", "--show", "--model"])
def test_these_names_have_no_exception(name):
    (texts,) = [meanings()[name]]
    assert len(texts) == 1, texts


def test_a_letter_is_one_option_of_few():
    by_letter: dict[str, set[str]] = defaultdict(set)
    for command in COMMANDS:
        for item in build_command(command).params:
            letters = [one for one in item.opts if len(one) == 2]
            for letter in letters:
                by_letter[letter].add(max(item.opts, key=len))
    assert dict.fromkeys(by_letter, 1) == {one: len(n) for one, n in by_letter.items()}
    assert by_letter["-m"] == {"--model"}
    made = build_command("self")
    options = [item for item in made.params if item.param_type_name == "option"]
    first = [item for item in options if item.name not in made.rare]
    # --help is added to both
    assert len(first) + 1 <= 15, [max(item.opts, key=len) for item in first]
    assert len(options) + 1 <= 60, [max(item.opts, key=len) for item in options]
