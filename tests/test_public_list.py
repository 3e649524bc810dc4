"""What a release promises to keep changes only together with the list of it, seen in a diff."""

from copy import deepcopy

from tests.public import Names, differences, kept, public


def complaint(old: Names, new: Names) -> str:
    """What to do about names that came or went; empty: nothing."""
    gone, came = differences(old, new)
    parts = []
    if gone:
        parts += [
            "these public names are gone or have changed:",
            *(f"  {name}" for name in gone),
            "keep them until the next major version and warn of their end, see docs/stability.md",
        ]
    if came:
        parts += ["these public names are new:", *(f"  {name}" for name in came)]
    if parts:
        parts += ["`python -m tests.public` writes the list anew; CHANGELOG.md says what changed"]
    return "\n".join(parts)


def test_public_names_are_those_of_the_list():
    told = complaint(kept(), public())
    assert not told, told


def test_each_kind_of_change_is_told_by_its_name():
    old, new = kept(), deepcopy(kept())
    assert complaint(old, new) == ""
    new["command"]["self"].remove("--lens")
    new["python"]["attend"].append("depth")
    del new["command"]["align"]
    new["program"]["exit statuses"].remove("3")
    fields = new["document of schema 2"]["heads"]
    fields[fields.index("texts:integer")] = "texts:string"
    told = complaint(old, new)
    gone, _, came = told.partition("these public names are new:")
    for name in (
        "command self --lens",
        "command align --symmetrize",
        "command align",
        "program exit statuses 3",
        "document of schema 2 heads texts:integer",
    ):
        assert f"  {name}\n" in gone
    assert came.split("\n")[1:-1] == [
        "  document of schema 2 heads texts:string",
        "  python attend depth",
    ]
    assert "python -m tests.public" in told
