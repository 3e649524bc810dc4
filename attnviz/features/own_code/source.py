"""A model of texts whose code calls no kernel of transformers, as a source of attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attnviz.core.attention_map import (
    PARTS,
    SECOND_PART,
    Attention,
    AttentionMap,
    Provenance,
    typed_facts,
)
from attnviz.core.errors import AttentionError, InputError, ModelError, UsageError
from attnviz.core.lens_inputs import ValueVectors
from attnviz.core.query import Query
from attnviz.core.records import dataclass, replace
from attnviz.features.own_code.denoising import (
    MOST_STEPS,
    Step,
    chosen_steps,
    denoise,
    tokens_at,
)
from attnviz.features.own_code.reading import (
    OwnCodeTrial,
    WatchedPass,
    layers_of,
    logits_of,
    watch_pass,
)
from attnviz.models import answer
from attnviz.models.hugging_face.capture.capture import without_cache
from attnviz.models.hugging_face.capture.region import CELL, DEFAULT_SIZE, MAP_BYTES, SIZES, Region
from attnviz.models.hugging_face.inputs import tokenization
from attnviz.models.hugging_face.inputs.chat import render_messages
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode
from attnviz.models.hugging_face.inputs.generation import ends_of, new_text, start_token
from attnviz.models.hugging_face.load.devices import running_errors
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.loaded_model import LoadedModel

KEPT_BYTES = 2**28  # of the maps of all steps: more steps are not kept
LACKS = {
    "experiment": "its heads and links cannot be switched off, and no effect or gradient is known",
    "trace_writers": "what each of its parts writes cannot be told apart",
    "read_stream": "what each of its parts writes cannot be told apart",
    "head_arithmetic": "the matrices of its heads are not known",
    "values": "the vectors that its weights add up are not known behind its own projections",
}
"""What cannot be asked of code that is seen from outside, by the question."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OwnCodeModel(LoadedModel):
    """A model whose attention is read as `watch` reads it; each text has a pass of its own."""

    answers = dict.fromkeys(LACKS, "")  # they are answered by a refusal

    trial: OwnCodeTrial

    @property
    def mask_token(self) -> int | None:
        """The token that stands for one to be written, if the model's files name one."""
        return mask_token_of(self.model, self.tokenizer)

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """Each query's maps, or its error, in order; no text is padded."""
        for query in queries:
            with quiet():
                one = answer(self._read, query)
            yield one

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Any = None) -> str:
        return render_messages(self.tokenizer, messages, self.name, tools=tools)

    def values(self, query: Query) -> ValueVectors:
        raise self._refusal("values")

    def _ask(self, name: str, *arguments: Any, **how: Any) -> Any:
        if name in LACKS:
            raise self._refusal(name)
        return None

    def _refusal(self, name: str) -> UsageError:
        return UsageError(
            f"'{self.name}' runs code of its own, which is read from outside: {LACKS[name]}; "
            "--lens raw, rollout and flow show its weights"
        )

    def _read(self, query: Query) -> Attention:
        if self.region.keep_qk or self.region.channels != "mean":
            raise AttentionError(
                f"'{self.name}' runs code of its own, and only its weights are seen: leave "
                "--keep-qk, --scores and --channels out"
            )
        if self.max_new_tokens is not None and not (self.trial.causal or self.trial.two_stacks):
            return self._denoise(query)
        encoding = encode(self, query)
        inputs = self.tensors(encoding.inputs, encoding.part)
        sides = encoding.sides
        if self.trial.two_stacks and encoding.part is self.model and [*sides] == ["encoder"]:
            # An encoder that cannot run alone: the decoder reads a token, and is not shown.
            inputs["decoder_input_ids"] = inputs["input_ids"][:, :1]
            sides = {**sides, "cross": (1, len(encoding.ids("text"))), "decoder": (1, 1)}
        longest = max(max(side) for side in sides.values())
        region = self._region_for(longest, whole=query.in_blocks is not None)
        reading = watch_pass(encoding.part, inputs, region)
        captures, notes = layers_of(reading, encoding.part, sides)
        own = [one for one in captures if one.stream in encoding.sides]
        return with_facts(encoding.build_attention(own), [reading], notes)

    def tensors(self, inputs: Mapping[str, Sequence[int]], part: Any) -> dict[str, Any]:
        model_inputs = LoadedModel.tensors(self, inputs, part)
        if not self.trial.takes_mask:
            model_inputs.pop("attention_mask", None)
        return model_inputs

    def _region_for(self, length: int, *, whole: bool = False) -> Region:
        """What is asked for; of a long text as many blocks as its maps leave room for.

        Of the `whole` every weight is wanted, as measures of heads need, if that fits.
        """
        most = None if whole else self.region.max_size
        if most is None:
            sizes = length if whole else DEFAULT_SIZE, DEFAULT_SIZE, *SIZES
            fitting = (one for one in sizes if CELL * self.trial.heads * one**2 <= MAP_BYTES)
            most = DEFAULT_SIZE if length <= DEFAULT_SIZE else next(fitting, SIZES[-1])
        return replace(self.region, max_size=most)

    def write_ids(self, inputs: Mapping[str, Any], most: int) -> list[int]:
        """The ids of a text or a target, and of what is written, each time the likeliest token."""
        import torch

        ends, device = ends_of(self), self.model.device
        name = "decoder_input_ids" if self.trial.two_stacks else "input_ids"
        ids = [start_token(self.model)] if self.trial.two_stacks else inputs[name][0].tolist()
        model_inputs = dict(inputs)
        for _ in range(most):
            model_inputs[name] = torch.tensor([ids], device=device)
            if name == "input_ids" and "attention_mask" in model_inputs:
                model_inputs["attention_mask"] = torch.ones_like(model_inputs[name])
            ids.append(int(self._logits(model_inputs)[-1].argmax()))
            if ids[-1] in ends:
                break
        return ids

    def _logits(self, inputs: Mapping[str, Any]) -> Any:
        """Scores of the vocabulary, (tokens, vocabulary), of one text."""
        import torch

        with running_errors(self.model), torch.no_grad():
            return logits_of(self.model(**without_cache(self.model, inputs, return_dict=True)))

    def _denoise(self, query: Query) -> Attention:
        """What a model that reads both ways writes behind a text, a map for each step."""
        number = self.mask_token
        if number is None or not self.can_generate:
            lacks = "names no mask token" if number is None else "has no head for tokens"
            raise ModelError(
                f"'{self.name}' reads both ways and {lacks}, so that it writes nothing: leave "
                "--generate out"
            )
        prompt = encode(replace(self, max_new_tokens=None), query)
        mask = number, tokenization.pieces_of(self.tokenizer, [number])[0]
        steps, passes = self._write_steps(prompt, number)
        return self._show_steps(prompt, mask, steps, passes)

    def _write_steps(
        self, prompt: EncodedQuery, mask: int
    ) -> tuple[list[Step], dict[int, WatchedPass]]:
        """The steps in which the model writes behind a prompt, and the passes that were read."""
        ids, count = list(prompt.ids("text")), self.max_new_tokens or 0
        length = len(ids) + count
        if self.limit is not None and length > self.limit:
            raise InputError(
                f"the prompt is {len(ids):,} tokens long and the model reads {self.limit:,}: "
                f"--generate can be {max(self.limit - len(ids), 0)} at most"
            )
        region, passes = self._region_for(length), dict[int, WatchedPass]()
        size = min(region.max_size or length, length)
        most = KEPT_BYTES // (4 * self.trial.heads * size**2)
        steps_to_read = chosen_steps(min(count, MOST_STEPS), most)

        def read(own: list[int], step: int) -> Any:
            inputs = self.tensors(_longer(prompt.inputs, own), self.model)
            if step not in steps_to_read:
                return self._logits(inputs)
            passes[step] = watch_pass(self.model, inputs, region)
            return logits_of(passes[step].output)

        one_before = hasattr(self.model, "diffusion_generate")  # so have models like Dream
        return denoise(read, ids, count, mask, one_before=one_before), passes

    def _show_steps(
        self,
        prompt: EncodedQuery,
        mask: tuple[int, str],
        steps: list[Step],
        passes: Mapping[int, WatchedPass],
    ) -> Attention:
        """The text that was written, with the maps of each step that was read."""
        text, ids, whole = prompt.attention.text or "", prompt.ids("text"), steps[-1].after
        output = new_text(self.tokenizer, list(ids), whole[len(ids) :])
        if not output.strip():
            raise ModelError("the model wrote nothing after this text: give another one")
        new = tokenization.label_ids(self.tokenizer, whole[len(ids) :], output, before=text)
        tokens = (*prompt.tokens["text"], *new)
        provenance = _describe_writing(prompt, len(new), steps, mask[1], len(passes))
        empty = Attention((), provenance, text=text + output, **typed_facts(provenance))
        maps, attention, notes = list[AttentionMap](), empty, dict[str, None]()
        for number, reading in passes.items():
            own_tokens = {"text": tokens_at(steps[number], tokens, mask)}
            encoding = replace(prompt, tokens=own_tokens, attention=empty)
            captures, more = layers_of(reading, self.model, encoding.sides)
            attention = encoding.build_attention(captures)
            notes |= dict.fromkeys((*attention.provenance.notes, *more))
            step = f"step {number + 1} of {len(steps)}"
            maps += (replace(item, stream=f"{step} · {item.stream}") for item in attention.maps)
        others = tuple(note for note in notes if note not in attention.provenance.notes)
        return with_facts(replace(attention, maps=tuple(maps)), [*passes.values()], others)


def with_facts(
    attention: Attention, passes: Sequence[WatchedPass], notes: tuple[str, ...]
) -> Attention:
    """An attention with further notes, and how its weights were compared with the outputs."""
    offs = [call.off for reading in passes for call in reading.calls if call.off is not None]
    check = {"checked": f"weights × values are the output to {max(offs):.1e}"} if offs else {}
    return attention.with_maps(attention.maps, notes=notes, settings=check)


def _longer(inputs: Mapping[str, Sequence[int]], ids: list[int]) -> dict[str, list[int]]:
    """A prompt's inputs for more ids; masks and types of tokens go on as they end."""
    rows = {name: [*row, *[row[-1]] * (len(ids) - len(row))] for name, row in inputs.items()}
    return {**rows, "input_ids": ids}


def _describe_writing(
    prompt: EncodedQuery, count: int, steps: Sequence[Step], mask: str, count_of_maps: int
) -> Provenance:
    """The provenance of a text that was written in steps."""
    each = [len(step.written) for step in steps]
    many = f"{each[-1]} or {each[0]}" if each[0] > each[-1] else str(each[0])
    notes = [
        f"the output was written in {len(steps)} steps, {many} "
        f"{'token' if each[0] == 1 else 'tokens'} a step, each time those of the largest "
        "probability (low-confidence remasking, greedy, one block); a map shows what was read at "
        f"its step: where {mask} is not yet written, and what is written there now"
    ]
    if count_of_maps < len(steps):
        notes.append(
            f"{count_of_maps} of {len(steps)} steps are shown, spread from the first to the last"
        )
    settings = {
        PARTS: "prompt and output",
        SECOND_PART: len(prompt.attention.text or ""),
        "prompt tokens": len(prompt.ids("text")),
        "output tokens": count,
        "steps": len(steps),
        "mask token": mask,
    }
    own = prompt.attention.provenance
    return replace(own, settings={**own.settings, **settings}, notes=(*own.notes, *notes))


def mask_token_of(model: Any, tokenizer: Any) -> int | None:
    """The mask token that a configuration names, or its tokenizer."""
    own = getattr(model.config, "mask_token_id", None)
    number = own if own is not None else getattr(tokenizer, "mask_token_id", None)
    return number if isinstance(number, int) else None
