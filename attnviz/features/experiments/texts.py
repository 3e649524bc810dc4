"""Texts as experiments: what they explain, and what their heads put out."""

from attnviz.core import effects, errors, lens_inputs
from attnviz.core.query import ALL_OUTPUTS, Query
from attnviz.features.targets.words import NEXT
from attnviz.models import Source
from attnviz.runs import inputs, pipeline
from attnviz.storage.texts import BadText


def open_experiment(source: Source, query: Query, target: str | None = None) -> effects.Experiment:
    """The model with a query and the outputs to explain.

    By default these are all tokens that the model predicts from those before them, in the target or
    the text. Other models explain a masked word or a class.

    Raises:
        UsageError: the source predicts nothing.
        InputError: the text has no token behind another.
    """
    if target is not None or query.kind not in ("self", "cross"):
        return source.experiment(query, target)
    try:
        experiment = source.experiment(query, ALL_OUTPUTS)
    except errors.UsageError:  # it predicts one word or one class
        return source.experiment(query)
    if not experiment.outputs:
        raise errors.InputError(
            f"the model predicts nothing of so short a text: --target {NEXT} explains what comes "
            "after it"
        )
    return experiment


def explained_by(experiment: effects.Experiment) -> lens_inputs.AttentionGradients:
    """The gradients of an experiment's outputs by every attention weight."""
    outputs, tokens = experiment.outputs, experiment.attention.main.query_tokens
    return lens_inputs.AttentionGradients(
        experiment.attention,
        experiment.gradients(),
        tuple(dict.fromkeys(output.row for output in outputs)),
        effects.label_of(outputs[0], tokens) if len(outputs) == 1 else f"all {len(outputs)} tokens",
        experiment=experiment,
    )


def outputs_of_texts(source: Source, texts: inputs.TextInput) -> list[effects.HeadOutputs]:
    """What each head puts out at the positions of each of some texts."""
    outputs = []
    for text in texts.open():
        if isinstance(text, BadText):
            raise text.error
        outputs.append(open_experiment(source, pipeline.query_of(source, text)).head_outputs())
    return outputs
