"""What heads are called for."""

import json
import math
import os

import pytest
from typer.testing import CliRunner

from attnviz.analyses.heads import CLEAR, ROLES, roles_of
from attnviz.cli.app import app
from attnviz.core.measures import Role

MODEL = os.environ.get("ATTNVIZ_CAUSAL_MODEL", "")


def test_a_clear_share_names_a_head():
    found = roles_of({"previous-token": 0.99, "entropy": 0.1}, {"previous-token": 0.1})
    assert [(role.name, role.share) for role in found] == [("previous-token", 0.99)]


def test_a_share_that_an_even_look_would_have_too_names_nothing():
    assert roles_of({"special-token": 0.6}, {"special-token": 0.5}) == ()


def test_a_text_in_which_there_is_nothing_else_names_nothing():
    assert roles_of({"self": 1.0}, {"self": 1.0}) == ()
    assert Role("self", 1.0, 1.0).lift == 0


def test_the_threshold_lies_half_of_the_way_to_nothing_else():
    assert CLEAR == 0.5
    assert roles_of({"self": 0.61}, {"self": 0.2})
    assert not roles_of({"self": 0.59}, {"self": 0.2})


def test_the_clearest_role_comes_first():
    values = {"self": 0.7, "previous-token": 0.9}
    uniform = {"self": 0.1, "previous-token": 0.2}
    assert [role.name for role in roles_of(values, uniform)] == ["previous-token", "self"]


def test_what_says_nothing_of_a_head_is_no_role():
    assert roles_of({"induction": math.nan}, {"induction": math.nan}) == ()


@pytest.mark.parametrize("name", ["previous-token", "induction", "punctuation"])
def test_roles_are_shares(name):
    assert name in ROLES
    assert "entropy" not in ROLES


def test_what_a_head_does_comes_before_where_it_rests():
    values = {"first-token": 0.98, "induction": 0.68}
    found = roles_of(values, {"first-token": 0.17, "induction": 0.03})
    assert [(role.name, role.kind) for role in found] == [
        ("induction", "acts"),
        ("first-token", "rests"),
    ]


@pytest.mark.skipif(not MODEL, reason="ATTNVIZ_CAUSAL_MODEL names no decoder with induction heads")
def test_the_induction_heads_of_a_trained_decoder_are_called_so():
    text = "The old man walked to the shop and bought a loaf of bread."
    done = CliRunner().invoke(app, ["heads", text, "--model", MODEL, "-f", "json", "-q"])
    heads = [head["roles"] for head in json.loads(done.stdout)["heads"] if head["roles"]]
    kinds = [[role["kind"] for role in roles] for roles in heads]
    assert kinds == [sorted(found) for found in kinds]
    assert ["induction", "first-token"] in [[role["name"] for role in roles] for roles in heads]
