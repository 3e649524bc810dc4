"""Open a model of texts whose code is its own, and see by a trial how its attention is read.

Newer code of its own calls the kernels of transformers, and is read like any family. What calls
none, and gives out no matrices that are those it uses, is read as `watch` reads a program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from attnviz.core.errors import AttnvizError
from attnviz.core.options import InMemoryModel
from attnviz.features.own_code.reading import WatchedPass, layers_of, try_reading
from attnviz.features.own_code.source import OwnCodeModel, mask_token_of
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.load.devices import loading_errors
from attnviz.models.hugging_face.load.family import Family
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.load.loading import own_classes
from attnviz.models.hugging_face.loaded_model import LoadedModel
from attnviz.models.hugging_face.text_model import HuggingFaceModel

WITH_HEAD = ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM")
CLOSE = 1e-4  # how far weights that a model gives out may lie off those that it uses


def open_own_code(
    name: str | InMemoryModel, load: Callable[..., HuggingFaceModel], *, with_head: bool
) -> LoadedModel:
    """The source of a model; that of `load` where kernels of transformers show its attention.

    `load` takes the name, and `class_of`, which chooses the class of a configuration's model.
    """
    in_memory = isinstance(name, InMemoryModel)
    model = (
        load(name) if in_memory else load(name, class_of=partial(own_class, with_head=with_head))
    )
    if type(model.model).__module__.startswith("transformers."):
        return model
    with quiet():
        try:
            trial, reading, inputs = try_reading(model.model, model.vocabulary)
        except AttnvizError:
            if in_memory:  # it may ask for other inputs than those of a trial
                return model
            raise
        both_ways = bool(reading.calls) and not (trial.causal or trial.two_stacks)
        mask = mask_token_of(model.model, model.tokenizer)
        denoises = model.max_new_tokens is not None and both_ways and mask is not None
        as_family = trial.takes_mask and (
            trial.calls_kernel or _gives_out(model.model, reading, inputs)
        )
    if reading.calls:  # the mask says what no table of families knows
        alone: Family = "decoder-only" if trial.causal else "encoder-only"
        family: Family = "encoder–decoder" if trial.two_stacks else alone
        settings = {**model.provenance.settings, "family": family}
        provenance = replace(model.provenance, settings=settings)
        model = replace(model, family=family, provenance=provenance)
    if as_family and not denoises:
        return model
    own = {item.name: getattr(model, item.name) for item in fields(LoadedModel)}
    return OwnCodeModel(**{**own, "can_generate": trial.predicts}, trial=trial)


def _gives_out(model: Any, reading: WatchedPass, inputs: Mapping[str, Any]) -> bool:
    """Whether a model of a single stack gives out the weights that it was seen to use, if any."""
    length = inputs["input_ids"].shape[1]
    sides = {"self": (length, length)}
    if "decoder_input_ids" in inputs:
        return False
    try:
        matrices = capture(model, inputs, sides, with_mixers=True)
        weights = layers_of(reading, model, sides)[0] if reading.calls else matrices
        pairs = zip(matrices, weights, strict=True)
        return all(np.allclose(one.weights, two.weights, 0, CLOSE) for one, two in pairs)
    except Exception:  # code of its own may raise anything where it is asked for its weights
        return False


def own_class(config: Any, *, with_head: bool) -> Any:
    """The class of its own code that loads a configuration's model; None: it names none."""
    own = {auto: one for auto, one in own_classes(vars(config)).items() if auto[:9] == "AutoModel"}
    if not own:
        return None
    of_architecture = [
        auto
        for auto, one in own.items()
        if one.rpartition(".")[2] in (getattr(config, "architectures", None) or ())
    ]
    heads = [auto for auto in WITH_HEAD if auto in own]
    order = (
        [*(auto for auto in heads if auto in of_architecture), *heads]
        if with_head
        else ["AutoModel"]
    )
    auto = next(auto for auto in [*order, *of_architecture, *own] if auto in own)
    with loading_errors(config.name_or_path):
        from transformers.dynamic_module_utils import get_class_from_dynamic_module
        from transformers.models.auto.auto_factory import add_generation_mixin_to_remote_model

        kind = get_class_from_dynamic_module(own[auto], config.name_or_path, local_files_only=True)
        add_mixin: Any = add_generation_mixin_to_remote_model
        return _with_old_habits(add_mixin(kind))


def _with_old_habits(kind: Any) -> Any:
    """A class that may be written for transformers 4, as one that transformers 5 can load.

    Then `__init__` made the numbers of buffers that no checkpoint holds (transformers 5 leaves any)
    and need not end in `post_init`, `tie_weights` took no arguments, and tied weights were a list
    of those that are the input embeddings.
    """
    from transformers import PreTrainedModel

    plain_ties = not inspect.signature(kind.tie_weights).parameters.keys() & {
        "missing_keys",
        "kwargs",
    }

    class OwnModel(kind):  # type: ignore[misc]
        def __init__(self, config: Any, *arguments: Any, **how: Any) -> None:
            with _real_buffers():
                super().__init__(config, *arguments, **how)
                if not hasattr(self, "all_tied_weights_keys"):
                    self.post_init()
            saves = self.state_dict().keys()
            own = self.named_buffers()
            self.own_buffers = {name: one.clone() for name, one in own if name not in saves}

        @classmethod
        def from_pretrained(cls, *arguments: Any, **how: Any) -> Any:
            """As usual, with buffers that no checkpoint holds as `__init__` has made them."""
            answer = super().from_pretrained(*arguments, **how)
            model = answer[0] if isinstance(answer, tuple) else answer
            own = dict(model.named_buffers())
            for name, numbers in model.own_buffers.items():  # moved, and not yet with numbers
                own[name].copy_(numbers)
            return answer

        def post_init(self) -> None:
            names: Any = getattr(self, "_tied_weights_keys", None)
            if isinstance(names, list | tuple):
                inputs = self.get_input_embeddings()
                paths = (path for path, part in self.named_modules() if part is inputs)
                sources = dict.fromkeys(names, f"{next(paths, '')}.weight")
                setattr(self, "_tied_weights_keys", sources)  # noqa: B010 - its type is a mapping
            super().post_init()

        def tie_weights(self, *arguments: Any, **how: Any) -> Any:
            if plain_ties:
                super().tie_weights()  # of weights that its own code shares
                return PreTrainedModel.tie_weights(self, *arguments, **how)
            return super().tie_weights(*arguments, **how)

    OwnModel.__name__, OwnModel.__qualname__ = kind.__name__, kind.__qualname__
    OwnModel.__module__ = kind.__module__
    return OwnModel


@contextmanager
def _real_buffers() -> Iterator[None]:
    """Make tensors on the processor and parameters without numbers, where all would have none."""
    import torch

    module_class: Any = torch.nn.Module
    plain = module_class.register_parameter

    def register(module: Any, name: str, one: Any) -> None:
        if one is not None and one.device.type != "meta":
            one = torch.nn.Parameter(one.detach().to("meta"), requires_grad=one.requires_grad)
        plain(module, name, one)

    if torch.get_default_device().type != "meta":
        yield
        return
    module_class.register_parameter = register
    try:
        with torch.device("cpu"):
            yield
    finally:
        module_class.register_parameter = plain
