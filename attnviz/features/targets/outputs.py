"""The outputs of a transformers model to explain: its prediction, or a named one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from attnviz.core.effects import PredictedToken
from attnviz.core.errors import ModelError, UnfitTextError, UsageError, did_you_mean, is_number
from attnviz.core.query import ALL_OUTPUTS
from attnviz.features.targets.words import NEXT, find_token, last_word, next_word, place_to_explain
from attnviz.mechanisms.arrays import to_numpy
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.inputs.generation import ends_of
from attnviz.models.hugging_face.load.family import SUFFIXES, check_labels
from attnviz.models.hugging_face.loaded_model import LoadedModel

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.core.attention_map import Token

MASK, LABEL = "mask:", "label:"  # a word for a mask; a label that is also a word


def check_head(source: LoadedModel, kind: str) -> None:
    """Refuse a model that predicts nothing for this query, or whose head is untrained."""
    if kind != "cross" and source.family == "encoder–decoder" and source.task is None:
        raise ModelError(
            f"'{source.name}' predicts while it writes a target: use 'attnviz cross' for --lens "
            "gradient, or --lens rollout, flow or norm here"
        )
    if hasattr(source.model.config, "text_vocab_size"):  # CSM predicts codes of sound
        raise no_head(source.name, type(source.model).__name__)
    lacks_task = type(source.model).__name__.endswith(tuple(SUFFIXES)) and source.task is None
    silent = source.model.can_generate() and not source.can_generate
    if lacks_task or silent:
        raise ModelError(
            f"'{source.name}' lacks the weights of its head, whose outputs would be random: use "
            "--lens rollout, flow or norm"
        )


def choose_outputs(
    source: LoadedModel, encoding: EncodedQuery, logits: Any, target: str | None
) -> tuple[PredictedToken, ...]:
    """The outputs to explain: one, or every token that earlier tokens predict."""
    if getattr(logits, "ndim", 0) not in (2, 3):
        raise no_head(source.name, source.provenance.settings["architecture"])
    speaks = logits.ndim == 3 and predicts_tokens(source)
    if target == ALL_OUTPUTS:
        if not speaks or source.family == "encoder-only":
            raise UsageError(
                "--target all needs a model that predicts each token from those before it: name a "
                "class or one token"
            )
        side = next(iter(encoding.axes.values()))[0]
        tokens, ids = encoding.tokens[side], encoding.ids(side)
        return tuple(
            PredictedToken(place - 1, int(ids[place]), tokens[place].text, place)
            for place in range(1, len(tokens))
        )
    if logits.ndim == 2:
        return (chosen_class(source.model.config, logits[0], target),)
    choose = _chosen_word if speaks else _chosen_label
    return (choose(source, encoding, logits[0], target),)


def no_head(name: str, kind: str) -> ModelError:
    """The error where a model, of a class of transformers, predicts nothing."""
    return ModelError(
        f"'{name}' ({kind}) has no head that gives classes or tokens, so it says "
        "nothing that could be explained: 'attnviz self --lens rollout', flow or norm needs none"
    )


def chosen_class(config: Any, logits: Tensor, target: str | None) -> PredictedToken:
    """A class by name or number, by default the likeliest, of logits of shape (classes)."""
    names = _label_names(config, len(logits))
    number = int(logits.argmax()) if target is None else _class_number(names, target)
    return PredictedToken(0, number, names[number])


def _chosen_label(
    source: LoadedModel, encoding: EncodedQuery, logits: Tensor, target: str | None
) -> PredictedToken:
    """The label of a token: the named one, the likeliest for a named label, or the last."""
    tokens = encoding.tokens["text"]
    names = _label_names(source.model.config, logits.shape[-1])
    also = f"{LABEL}{target}" if target in names else ""
    label = (target or "").removeprefix(LABEL)
    position = (
        _default_position(encoding) if target is None else find_token(tokens, target, 0, also)
    )
    if position is not None:
        number = int(logits[position].argmax())
    elif label in names:
        number = names.index(label)
        position = int(logits[:, number].argmax())
    else:
        raise UnfitTextError(
            f"--target '{target}' is neither a token of the text (by its text, or 0 to "
            f"{len(tokens) - 1}) nor a label: {', '.join(names)[:200]}"
        )
    return PredictedToken(position, number, f"{names[number]} ({tokens[position].text})", position)


def _chosen_word(
    source: LoadedModel, encoding: EncodedQuery, logits: Tensor, target: str | None
) -> PredictedToken:
    """A token that a language model predicts.

    By default a masked model explains its mask, or the last word; a causal one the next word, or
    the last of a given target. A wanted word that is not in the text comes from the vocabulary.
    """
    side = next(iter(encoding.axes.values()))[0]
    tokens, ids = encoding.tokens[side], list(encoding.ids(side))
    ahead = 0 if source.family == "encoder-only" else 1
    mask = source.tokenizer.mask_token_id
    position = _default_position(encoding, ahead, mask)
    end = _end_of_text(tokens) if ahead and side == "text" else len(tokens)
    number, note = None, ""
    if target is not None:
        # After a complete target, and without a mask, there is no position to predict.
        is_open = not tokens[end - 1].special or end == 1 if ahead else mask in ids
        name = NEXT if ahead else MASK
        place = name if is_open else "", end if ahead else position
        number_of = partial(_vocabulary_number, source)
        choice = place_to_explain(
            tokens, target, ahead, number_of, place, is_target=side == "target"
        )
        if choice is None:
            raise UnfitTextError(
                f"--target '{target}' is neither a token of the {side} (by its text, or "
                f"{ahead} to {len(tokens) - 1 + ahead}) nor one piece of the model's vocabulary"
            )
        position, number, note = choice
    row = position - ahead
    first = end if target in (None, NEXT) else len(ids)  # of what the model would say
    if ahead and number is None and position >= first:
        if position < len(ids):
            mark = tokens[position].text
            note = f"the text ends in '{mark}': what the model says in its place is explained"
        scores, spell = to_numpy(logits[row]), partial(spell_piece, source)
        tokenizer = source.tokenizer
        marks = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id, tokenizer.mask_token_id}
        return next_word(position, scores, sorted({*marks, *ends_of(source)}), spell, note)
    if number is None:
        number = ids[position] if ahead and position < len(ids) else int(logits[row].argmax())
    is_there = position < len(ids) and ids[position] == number
    name = tokens[position].text if is_there else spell_piece(source, number)
    if not ahead and not is_there and ids[position] != source.tokenizer.mask_token_id:
        name += f" ({tokens[position].text})"
    return PredictedToken(row, number, name, position, note=note)


def _end_of_text(tokens: Sequence[Token]) -> int:
    """The position behind the text, where end tokens may stand that a tokenizer adds."""
    return max((at + 1 for at, token in enumerate(tokens) if not token.special), default=1)


def _default_position(encoding: EncodedQuery, ahead: int = 0, mask: int | None = None) -> int:
    """The position to explain by default; one past the last is the next token."""
    side = next(iter(encoding.axes.values()))[0]
    tokens, ids = encoding.tokens[side], list(encoding.ids(side))
    if ahead:
        is_target = side == "target" and len(tokens) > 1
        return last_word(tokens) if is_target else _end_of_text(tokens)
    if mask is not None and mask in ids:
        return ids.index(mask)
    return last_word(tokens)


def _vocabulary_number(source: LoadedModel, word: str) -> int | None:
    unknown = source.tokenizer.unk_token_id
    for text in (f" {word}", word):  # many tokenizers keep the space before a word
        ids = source.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != unknown:
            return int(ids[0])
    return None


def predicts_tokens(source: LoadedModel) -> bool:
    """Whether the model's choices are pieces of its vocabulary, not classes."""
    return source.task is None and source.model.get_output_embeddings() is not None


def spell_choice(source: LoadedModel, number: int) -> str:
    """The name of a class or of a piece of the vocabulary."""
    if predicts_tokens(source):
        return spell_piece(source, number)
    return class_name(source.model.config, number)


def spell_piece(source: LoadedModel, number: int) -> str:
    text = str(source.tokenizer.decode([number])).strip()
    if text and "\ufffd" not in text:  # a part of a character
        return text
    return str(source.tokenizer.convert_ids_to_tokens(number) or f"<{number}>")


def class_name(config: Any, number: int) -> str:
    return str(config.id2label[number])


def _label_names(config: Any, count: int) -> list[str]:
    check_labels(count, config.id2label)
    return [class_name(config, number) for number in range(count)]


def _class_number(names: list[str], target: str) -> int:
    plain = [name.casefold() for name in names]
    if target.casefold() in plain:
        return plain.index(target.casefold())
    if is_number(target) and int(target) < len(names):
        return int(target)
    listing = ", ".join(f"{number} {name}" for number, name in enumerate(names[:20]))
    raise UsageError(
        f"--target '{target}' is no class of this model: choose from {listing}"
        f"{', …' if len(names) > 20 else ''}.{did_you_mean(target, names)}"
    )
