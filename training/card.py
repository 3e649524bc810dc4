"""What the pocket model's card says: every figure from its configuration and its origin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attnviz.models.pocket.card import ATTRIBUTION
from attnviz.models.pocket.text import LONGEST, RELIABLE, UNLIKELY

CLEAR = 1.5
"""How many times the share of uniform attention makes a role."""
LED_ROLE = "same word elsewhere"
"""The role that one encoder head is trained for; every other role arose by itself."""
SEEKERS = "governor looks at its dependent", "dependent looks at its governor"


def describe_translator(origin: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The card's lines by section, and one for a list of models."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    sizes = config["sizes"]
    summary = (
        "English–French encoder–decoder that ships with attnviz: "
        f"{sizes['encoder_layers']} + {sizes['decoder_layers']} layers × {sizes['heads']} heads"
    )
    sections = {
        _model(config, folder): [],
        "Data": _data(origin),
        "Objective": _objective(config, origin),
        "Figures": _figures(origin["figures"]),
        "What its heads do": _roles(config, origin["figures"].get("roles")),
        "Limits": _limits(origin["figures"].get("limits")),
    }
    kept = {title: lines for title, lines in sections.items() if lines or title != "Figures"}
    return {"summary": summary, "card": kept}


def _model(config: dict[str, Any], folder: Path) -> str:
    sizes = config["sizes"]
    megabytes = (folder / "weights.safetensors").stat().st_size / 1e6
    return (
        f"pocket · revision {config['revision']}\n"
        "An English–French encoder–decoder transformer, small enough to ship with the package.\n"
        f"{sizes['encoder_layers']} encoder and {sizes['decoder_layers']} decoder layers, "
        f"{sizes['heads']} heads each, size {sizes['size']}, {sizes['vocabulary']} pieces; "
        f"{megabytes:.1f} MB as float16."
    )


def _data(origin: dict[str, Any]) -> list[str]:
    start = origin["started_from"]
    first = (
        f"Continued from earlier weights (sha256 {start['sha256'][:12]}), trained on the same text."
        if start
        else "Trained from random weights."
    )
    return [
        ATTRIBUTION,
        f"{origin['data']['pairs']} pairs (file sha256 {origin['data']['sha256'][:12]}); "
        f"{origin['data']['unseen']} English sentences and all their translations kept out",
        first,
    ]


def _objective(config: dict[str, Any], origin: dict[str, Any]) -> list[str]:
    recipe, guided, led = origin["recipe"], config["guided"], []
    if head := config.get("repeats"):
        led = [
            f"encoder layer {head['layer']} head {head['head']} led from a piece that occurs "
            "again to its other occurrences, in texts without hidden words"
        ]
    return [
        "translation both ways, the target's language given by a tag "
        f"({recipe['french_to_english']:.0%} French to English)",
        f"hidden words in the encoder ({recipe['masked']:.0%} of texts), language modelling in "
        f"the decoder over an empty source ({recipe['language_model']:.0%})",
        f"decoder layer {guided['layer']} head {guided['head']} led to word alignments: the row "
        "that has just read a token looks at that token's source, or at <eos> where it has none;",
        "the alignments come from two hidden Markov models that agree, learned from the same text",
        *led,
    ]


def _figures(figures: dict[str, Any]) -> list[str]:
    lines = []
    unseen = figures.get("unseen")
    if unseen:
        lines.append(
            f"{unseen['unseen_pairs']} unseen pairs: {unseen['nats_en_fr']} nats a token English "
            f"to French, {unseen['nats_fr_en']} French to English"
        )
        if "signature" in unseen:
            lines.append(
                f"greedy English to French: chrF {unseen['chrf']} against all translations, "
                f"{unseen['chrf_one_reference']} against the first ({unseen['signature']})"
            )
    alignment = figures.get("alignment")
    if alignment:
        lines.append(
            "alignment error in per cent on ALIBI (Xu & Yvon 2016; never trained on), all "
            f"{alignment['sentences']} sentences and the {alignment['sentences_in_vocabulary']} "
            "whose words all occur in training:"
        )
        lines += [
            f"  {way:<20} {error:>5} {alignment['error_in_vocabulary'][way]:>5}"
            for way, error in alignment["error"].items()
        ]
    return lines


def _roles(config: dict[str, Any], roles: dict[str, Any] | None) -> list[str]:
    guided = config["guided"]
    lines = [
        f"cross    layer {guided['layer']} head {guided['head']}  the head trained to align",
    ]
    if not roles:
        return lines
    clear = [item for item in roles["shares"] if item["share"] > CLEAR * item["even"]]
    led = config.get("repeats", {})
    lines += [
        f"{item['stream']:<8} layer {item['layer']} head {item['head']}  {item['role']}"
        f"{', as it was led to' if _is_led(item, led) else ''}: "
        f"{item['share']:.2f} of a word's attention (uniform attention: {item['even']:.2f})"
        for item in clear
    ]
    lines += [
        f"{item['stream']:<8} no head for: {item['role']} (at most {item['share']:.2f}; "
        f"uniform attention: {item['even']:.2f})"
        for item in roles["shares"]
        if item not in clear
    ]
    better = [item for item in roles["syntax"] if item["right"] > item["fixed_offset"]]
    lines += [
        f"encoder  layer {item['layer']} head {item['head']}  {item['relation']}: right in "
        f"{item['right']} % of {item['cases']}, the {SEEKERS[item['toward'] == 'head']} "
        f"(best fixed distance {item['fixed_offset']} %)"
        for item in sorted(better, key=lambda item: item["fixed_offset"] - item["right"])
    ]
    lines.append(f"(measured on {roles['sentences']} sentences of UD English EWT, CC BY-SA 4.0)")
    return lines


def _is_led(item: dict[str, Any], led: dict[str, int]) -> bool:
    head = {"layer": item["layer"], "head": item["head"]}
    return item["role"] == LED_ROLE and head == {part: str(led[part]) for part in led}


def _limits(figures: dict[str, Any] | None) -> list[str]:
    return [
        "short everyday sentences; other languages, rare words and literature are outside what "
        "it was trained for",
        f"it says so from an unknown piece on, above {RELIABLE} pieces, and where neither English "
        f"nor French is likely (above {UNLIKELY} nats a character); more than {LONGEST} pieces are "
        "refused",
        *(_measured_limits(figures) if figures else []),
        "its translations are greedy and often wrong; it is here to show attention, not to "
        "translate",
    ]


def _measured_limits(figures: dict[str, Any]) -> list[str]:
    roles = "; ".join(
        f"the {name} word's head (encoder layer {layer} head {head}) "
        + " ".join(f"{share:.2f}" for share in figures[name])
        for name, layer, head in (("next", 1, 3), ("previous", 3, 5))
    )
    lengths = [(f"up to {most}", error) for most, error in figures["lengths"]]
    lengths[-1] = (f"above {figures['lengths'][-2][0]}", lengths[-1][1])
    shares = ", ".join(f"{share:.0%} {error}" for share, error in figures["replaced"])
    unknown = ", ".join(f"{name} {one['unknown']}" for name, one in figures["languages"].items())
    return [
        f"by ten positions each, from the beginning of long texts: {roles}",
        "alignment error in per cent on ALIBI by pieces of the longer side: "
        + ", ".join(f"{name} {error}" for name, error in lengths),
        f"alignment error where so many of the English words are {figures['replaced by']} ones: "
        + shares,
        f"sentences whose language it calls unknown, in per cent: {unknown}",
    ]
