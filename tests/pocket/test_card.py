"""The card prints what lies beside the weights, and those figures reach what was aimed for."""

import json
from copy import deepcopy
from shutil import copytree

from attnviz.models.pocket.card import ATTRIBUTION, card_of, summary_of
from attnviz.models.pocket.model import FOLDER
from training.card import LED_ROLE, describe_translator

ORIGIN = json.loads((FOLDER / "origin.json").read_text(encoding="utf-8"))


def test_the_card_is_what_training_writes_and_measures():
    printed = card_of("pocket")
    assert ATTRIBUTION in printed
    for heading in ("Data", "Objective", "Figures", "What its heads do", "Limits"):
        assert f"\n{heading}\n" in printed
    assert ORIGIN["data"]["sha256"][:12] in printed
    printed = card_of("pocket")
    assert f"{ORIGIN['figures']['unseen']['nats_en_fr']} nats a token English to French" in printed
    for error in ORIGIN["figures"]["alignment"]["error"].values():
        assert f" {error} " in printed
    assert describe_translator(ORIGIN, FOLDER) == {
        name: ORIGIN[name] for name in ("summary", "card")
    }
    assert "4 + 4 layers × 6 heads" in summary_of("pocket")
    assert "\n" not in summary_of("pocket")


def test_a_head_that_was_led_to_its_role_is_called_so(tmp_path):
    folder = tmp_path / "files"
    copytree(FOLDER, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shares = ORIGIN["figures"]["roles"]["shares"]
    found = next(item for item in shares if item["role"] == LED_ROLE)
    config["repeats"] = {"layer": int(found["layer"]), "head": int(found["head"])}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    origin = deepcopy(ORIGIN)
    for item in origin["figures"]["roles"]["shares"]:
        item["share"] = 0.9
    card = describe_translator(origin, folder)["card"]
    assert json.dumps(card).count("as it was led to") == 1
    assert any("led from a piece that occurs again" in line for line in card["Objective"])


def test_the_figures_reach_what_was_aimed_for():
    figures = ORIGIN["figures"]
    assert figures["unseen"]["nats_en_fr"] <= 0.95
    assert figures["unseen"]["chrf"] > 60
    assert figures["alignment"]["error"]["forward"] <= 30
    assert figures["alignment"]["error"]["intersection"] <= 22
    assert figures["alignment"]["error_in_vocabulary"]["intersection"] <= 9
    syntax = ORIGIN["figures"]["roles"]["syntax"]
    assert any(item["right"] > item["fixed_offset"] for item in syntax)
