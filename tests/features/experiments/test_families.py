"""What is switched off in each family, against hooks, softmaxes and gradients of the model's own.

The oracles know nothing of kernels: a head is zeroed at the input of the projection that follows, a
link is cut by −∞ in the softmax of transformers' own eager attention, and gradients are those that
autograd has with respect to the weights that this attention hands over.
"""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
import pytest
import torch
from transformers.modeling_utils import AttentionInterface
from transformers.pytorch_utils import Conv1D

from attnviz.core.effects import HeadAt, Intervention, LinkAt, RowAt, TokenAt, effects_of
from attnviz.core.errors import AttentionError, ModelError
from attnviz.features.experiments import interventions, layer_states
from attnviz.features.experiments.kernel import EagerExperiment, KernelExperiment, experiment_of
from attnviz.features.experiments.texts import explained_by
from attnviz.features.lenses.effect import SINK, effect, effects
from attnviz.models.hugging_face.capture.kernel import watch_kernels
from tests.hugging_face.tiny_families import UNLIKE
from tests.hugging_face.tiny_heads import asked, eager, head_of, make
from tests.precision import allowed, apart, exact, in_float64

pytestmark = [pytest.mark.models, pytest.mark.usefixtures("silence")]

FAST = ("bert", "gpt_oss", "t5")
"""One with grouped heads, windows and sinks, one of two halves, and the plainest: the fast tier."""
GATED = ("qwen3_next",)
"""Between their kernel and the projection heads are scaled, so that only 0 stays what it is."""
UNREAD = ("git", "xlnet")
"""One needs a picture before its text; the other gives out copies of its weights."""
SOFTMAXES = ("torch.nn.functional.softmax", "torch.softmax", "torch.Tensor.softmax")


def families(route):
    return [
        pytest.param(name, marks=() if name in FAST else pytest.mark.slow)
        for name, family in UNLIKE.items()
        if family.route == route and head_of(name) and family.kind != "windows"
    ]


def said(question, model, outputs):
    """Log p of each output's choices, straight from the model."""
    with torch.no_grad():
        logits = model(**question.inputs).logits
    logits = logits[:, None] if logits.ndim == 2 else logits
    rows = logits[0, [output.row for output in outputs]]
    return rows.log_softmax(-1).numpy()


@contextmanager
def next_projection():
    """A function that changes the heads' outputs at the input of the projection called next."""
    waiting = []

    def before(module, given):
        if not waiting:
            return None
        (heads, size), change = waiting[0]
        (rows,) = given
        if rows.shape[-1] != heads * size:
            return None
        waiting.clear()
        rows = rows.clone().unflatten(-1, (heads, size))
        change(rows)
        return rows.flatten(-2)

    with ExitStack() as hooks:
        for kind in (torch.nn.Linear, Conv1D):
            own = kind.forward

            def forward(module, *given, own=own):
                changed = before(module, given)
                return own(module, *given if changed is None else (changed,))

            hooks.enter_context(patch.object(kind, "forward", forward))
        yield lambda shape, change: waiting.append((shape, change))
    assert not waiting


@contextmanager
def head_zeroed(number, head, instead=None):
    """A head's output is 0 or `instead` at the projection that follows the n-th kernel call."""
    calls = []

    def change(rows):
        rows[..., head, :] = 0 if instead is None else torch.as_tensor(instead)

    def look(call):
        if len(calls) == number:
            at_projection(call.output.shape[2:], change)
        calls.append(call)

    with next_projection() as at_projection, watch_kernels(look):
        yield


@contextmanager
def scores_changed(shapes, change):
    """The n-th attention softmax of a block of code is that of `change(n, scores)`."""
    counts, own = [0], torch.softmax

    def softmax(scores, dim=-1, *_, dtype=None, **__):
        number = counts[0]
        shape = shapes[number] if number < len(shapes) else None
        attends = scores.ndim == 4 and dim in (-1, 3) and shape is not None
        if attends and (*scores.shape[:3],) == shape[:3] and scores.shape[3] - shape[3] in (0, 1):
            counts[0] += 1
            scores = change(number, scores)
        return own(scores, dim, dtype=dtype)

    with ExitStack() as patches:
        for name in SOFTMAXES:
            patches.enter_context(patch(name, softmax))
        yield
    assert counts[0] == len(shapes)


def score_slope(question, own, outputs, shapes, link, called):
    """The slope of the outputs' log p as a link's score moves in the softmaxes of these numbers."""
    totals = []
    for step in (1e-4, -1e-4):

        def move(number, scores, step=step):
            if number in called:
                scores = scores.clone()
                scores[0, link.head, link.query, link.key] += step
            return scores

        with scores_changed(shapes, move):
            rows = said(question, own, outputs)
        totals.append(rows[range(len(outputs)), [output.number for output in outputs]].sum())
    return (totals[0] - totals[1]) / 2e-4


def links_of(experiment):
    """In each map's first and last layer a link that is neither all nor nothing, by its place."""
    for item in experiment.attention.maps:
        for place in {0, len(item.layers) - 1}:
            weights = item.weights[place].copy()
            weights[weights > 0.8] = 0
            head, query, key = np.unravel_index(weights.argmax(), weights.shape)
            if weights.max() > 0:
                yield LinkAt(item.stream, int(query), int(key), item.layers[place], int(head))


def shapes_of(model, question):
    calls = []
    with torch.no_grad(), watch_kernels(calls.append):
        model(**question.inputs)
    return [(*call.query.shape[:3], call.key.shape[2], call.value.shape[3]) for call in calls]


def heads_of(experiment):
    """The first layer's first head and the last layer's last one, of each map."""
    for item in experiment.attention.maps:
        yield HeadAt(item.stream, item.layers[0], 0)
        yield HeadAt(item.stream, item.layers[-1], item.weights.shape[1] - 1)


@pytest.fixture
def doubled():
    """Models that compute some of it in float32, whatever they are loaded as, do not here."""
    own, share = {name: getattr(torch.Tensor, name) for name in ("to", "type")}, torch.softmax

    def kept(name):
        def convert(self, *given, **named):
            if self.dtype == torch.float64:
                given = [torch.float64 if item is torch.float32 else item for item in given]
                if named.get("dtype") is torch.float32:
                    named["dtype"] = torch.float64
            return own[name](self, *given, **named)

        return convert

    def softmax(scores, dim=None, *_, dtype=None, **__):
        scores = scores if dtype is None or scores.dtype == torch.float64 else scores.to(dtype)
        return share(scores, dim)

    with in_float64(), ExitStack() as patches:
        for name in own:
            patches.enter_context(patch(f"torch.Tensor.{name}", kept(name)))
        patches.enter_context(patch("torch.Tensor.float", lambda self: self.to(torch.float32)))
        for name in SOFTMAXES:
            patches.enter_context(patch(name, softmax))
        yield


def in_double(name):
    model = exact(make(name))
    return model, asked(name, model)


@pytest.mark.slow
@pytest.mark.usefixtures("doubled")
@pytest.mark.parametrize("name", families("probe"))
def test_a_head_is_off_as_before_its_projection(name):
    model, question = in_double(name)
    experiment = KernelExperiment(question)
    heads = list(heads_of(experiment))
    means = {
        place: rows.mean(axis=1, keepdims=True) for place, rows in experiment.head_outputs().items()
    }
    for instead in (None, means) if name not in GATED else (None,):
        found = experiment.run([Intervention(heads=(at,)) for at in heads], instead)
        for at, scores in zip(heads, found, strict=True):
            number = experiment.places.index((at.stream, at.layer))
            mean = None if instead is None else means[at.stream, at.layer][at.head]
            with head_zeroed(number, at.head, mean):
                expected = said(question, model, experiment.outputs)
            assert np.isfinite(expected).all()
            np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-10)
            assert np.abs(scores - said(question, model, experiment.outputs)).max() > 1e-6


def masked(scores, change, place, sides):
    """A layer's scores with the links and tokens of a change at minus infinity."""
    scores = scores.clone()
    for link in change.links:
        if (link.stream, link.layer) == place:
            scores[0, link.head, link.query, link.key] = -torch.inf
    for token in change.tokens:
        if token.side == sides[1]:
            kept = scores[:, :, token.position, token.position].clone()
            scores[..., token.position] = -torch.inf
            if sides[0] == sides[1]:
                scores[:, :, token.position, token.position] = kept
    return scores


@pytest.mark.slow
@pytest.mark.usefixtures("doubled")
@pytest.mark.parametrize("name", families("probe"))
def test_a_link_is_cut_as_by_minus_infinity(name):
    """A head that is off stays off beside them."""
    model, question = in_double(name)
    experiment = KernelExperiment(question)
    own, shapes = exact(eager(make(name))), shapes_of(model, question)
    changes = [Intervention(links=(link,)) for link in links_of(experiment)]
    assert changes
    sides = {item.key_side: len(item.key_tokens) for item in experiment.attention.maps}
    # A passage is left out so.
    changes += [Intervention(tokens=tuple(TokenAt(side, n) for n in (1, 2, 3))) for side in sides]
    changes += [Intervention(tokens=(TokenAt(side, sides[side] // 2),)) for side in sides]
    changes.append(changes[0] + changes[-1] + Intervention((next(heads_of(experiment)),)))
    found = list(experiment.run(changes))
    with patch.object(interventions, "masked_output", lambda *_: None):  # as other kernels
        again = list(KernelExperiment(question).run(changes))
    for change, scores, others in zip(changes, found, again, strict=True):

        def hide(number, given, change=change):
            place = experiment.places[number]
            if place is None:
                return given
            for at in change.heads:
                if (at.stream, at.layer) == place:
                    size = shapes[number][1], shapes[number][4]
                    at_projection(size, lambda rows, at=at: rows[..., at.head, :].zero_())
            return masked(given, change, place, experiment.sides[place[0]])

        with next_projection() as at_projection, scores_changed(shapes, hide):
            expected = said(question, own, experiment.outputs)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(others, expected, rtol=0, atol=1e-10)
    assert np.abs(found[-1] - found[0]).max() > 1e-6


@pytest.mark.slow
def test_a_sink_keeps_its_share_of_sharp_rows():
    """Float32 against float64 with the link masked by hand before the softmax, the sink kept."""
    model = make("gpt_oss")
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "q_proj.weight" in name:
                weights.mul_(11)
    double, own = exact(model), exact(eager(model))
    experiment = KernelExperiment(asked("gpt_oss", model))
    (item,), estimated = experiment.attention.maps, effect(explained_by(experiment)).maps[0]
    links = [
        LinkAt(item.stream, query, int(item.weights[layer, head, query].argmax()), name, head)
        for layer, name in enumerate(item.layers)
        for head in range(4)
        for query in (5, 8, 10)
    ]
    changes = [Intervention(links=(link,)) for link in links]
    found = effects_of(experiment, changes).sum(axis=1)
    numbers = [output.number for output in experiment.outputs]
    with in_float64():
        question = asked("gpt_oss", double)
        true, shapes = KernelExperiment(question), shapes_of(double, question)
        handed = handed_over(own, question, true, shapes, log=True)
        truth, rows = [], []
        for link in (None, *links):

            def hide(number, given, link=link):
                if link is not None and true.places[number] == (link.stream, link.layer):
                    given = given.clone()
                    given[0, link.head, link.query, link.key] = -torch.inf
                    rows.append(given[0, link.head, link.query].softmax(-1)[:-1].numpy())
                return given

            with scores_changed(shapes, hide):
                truth.append(said(question, own, true.outputs)[[0, 1], numbers].sum())
    assert item.weights.sum(-1).max() >= 1  # what a row lacks of 1 is nothing but rounding
    known = np.isfinite(found)  # float32 holds nothing of what is left of the others
    assert known.sum() > 15
    expected = truth[0] - np.array(truth[1:])
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-4, atol=1e-4)
    for link, row in zip(np.array(links)[known], np.array(rows)[known], strict=True):
        place = item.layers.index(link.layer), link.head, link.query
        changed = experiment.changed_maps(Intervention(links=(link,))).maps[0].weights[place]
        assert not changed.any() or changed == pytest.approx(row, rel=1e-3, abs=1e-5)
        weights, slopes = (one[place[1:]] for one in handed[link.stream, link.layer])
        others = np.arange(len(weights)) != link.key
        if (rest := 1 - weights[link.key]) < 1e-11:  # too little for float64 too
            continue
        mean = (weights * slopes)[others].sum() / rest
        by_hand = weights[link.key] * (slopes[link.key] - mean)
        shown = estimated.weights[(*place, link.key)]
        np.testing.assert_allclose(shown, by_hand, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("doubled")
@pytest.mark.parametrize("name", families("probe"))
def test_gradients_are_those_of_autograd_and_small_steps(name):
    model, question = in_double(name)
    experiment = KernelExperiment(question)
    own, shapes = exact(eager(make(name))), shapes_of(model, question)
    slopes, logit = experiment.gradients(), experiment.explain_first()
    maps = list(zip(experiment.attention.maps, slopes, strict=True))
    weights = handed_over(own, question, experiment, shapes, log=True)
    alone = handed_over(own, question, experiment, shapes, log=False)
    for item, slope in zip(experiment.attention.maps, logit.gradients, strict=True):
        for place, layer in enumerate(item.layers):
            direct = alone[item.stream, layer][1]
            np.testing.assert_allclose(slope[place], direct, rtol=1e-9, atol=1e-10)
    for item, slope in maps:
        for place, layer in enumerate(item.layers):
            value, direct = weights[item.stream, layer]
            np.testing.assert_allclose(slope[place], direct, rtol=1e-9, atol=1e-10)
            pull = (value * direct).sum(-1, keepdims=True)
            lost = 1 - value.sum(-1, keepdims=True)
            known = (value < 0.999) & ((lost < 1e-12) | (lost > SINK))
            by_hand = value[known] * (direct - pull)[known] / (1 - value[known])
            estimated = effects(value, direct)[known]
            np.testing.assert_allclose(estimated, by_hand, rtol=1e-9, atol=1e-10)
    for link in links_of(experiment):
        value, direct = weights[link.stream, link.layer]
        row, pull = value[link.head, link.query], direct[link.head, link.query]
        place = link.stream, link.layer
        called = {number for number, one in enumerate(experiment.places) if one == place}
        slope = score_slope(question, own, experiment.outputs, shapes, link, called)
        expected = row[link.key] * (pull[link.key] - row @ pull)
        np.testing.assert_allclose(expected, slope, rtol=1e-4, atol=1e-7)


@pytest.mark.usefixtures("doubled")
@pytest.mark.parametrize("name", [one for one in families("probe") if one.values[0] not in GATED])
def test_outputs_are_weights_times_values(name):
    _, question = in_double(name)
    experiment = KernelExperiment(question)
    outputs, values = experiment.head_outputs(), experiment.head_values()
    slopes = experiment.output_gradients()
    for item in experiment.attention.maps:
        for layer, weights in zip(item.layers, item.weights, strict=True):
            place = item.stream, layer
            np.testing.assert_allclose(weights @ values[place], outputs[place], rtol=0, atol=1e-5)
    drawn, numbers = np.random.default_rng(0), [one.number for one in experiment.outputs]
    for at in heads_of(experiment):
        place = at.stream, at.layer
        direction, totals = drawn.normal(size=outputs[place].shape[1:]), []
        for step in (1e-4, -1e-4):
            moved = {**outputs, place: outputs[place].copy()}
            moved[place][at.head] += step * direction
            (rows,) = experiment.run([Intervention(heads=(at,))], moved)
            totals.append(rows[range(len(numbers)), numbers].sum())
        expected = (totals[0] - totals[1]) / 2e-4
        found = (slopes[place][at.head] * direction).sum()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def handed_over(own, question, experiment, shapes, *, log):
    """transformers' own eager weights, and by them the gradients of log p or of the first logit."""
    with scores_changed(shapes, lambda _, scores: scores), torch.enable_grad():
        output = own(**question.inputs, output_attentions=True)
        logits = output.logits[:, None] if output.logits.ndim == 2 else output.logits
        scores = logits[0].log_softmax(-1) if log else logits[0]
        outputs = experiment.outputs if log else experiment.outputs[:1]
        total = sum(scores[one.row, one.number] for one in outputs)
        names = {"cross": "cross_attentions", "encoder": "encoder_attentions"}
        layers = {}
        for item in experiment.attention.maps:
            field = names.get(item.stream, "decoder_attentions")
            given = getattr(output, field, None) if "cross" in sum_streams(experiment) else None
            given = output.attentions if given is None else given
            places = [p for p in experiment.places if p and p[0] == item.stream]
            given = [layer for layer in given if layer is not None]
            layers |= dict(zip(places, given, strict=True))
        slopes = torch.autograd.grad(total, list(layers.values()), allow_unused=True)
    return {
        place: (
            layer[0].detach().numpy(),
            (torch.zeros_like(layer) if slope is None else slope)[0].numpy(),
        )
        for (place, layer), slope in zip(layers.items(), slopes, strict=True)
    }


def sum_streams(experiment):
    return {item.stream for item in experiment.attention.maps}


def hooks_of(model):
    return [
        (list(module._forward_hooks), list(module._forward_pre_hooks)) for module in model.modules()
    ]


def changes_of(experiment):
    """Heads and links of each map, a token of each side, and all of it at once."""
    found = [Intervention(heads=(at,)) for at in heads_of(experiment)]
    found += [Intervention(links=(link,)) for link in links_of(experiment)]
    sides = {item.key_side: len(item.key_tokens) for item in experiment.attention.maps}
    found += [Intervention(tokens=(TokenAt(side, sides[side] // 2),)) for side in sides]
    together = Intervention()
    for change in found:
        together += change
    return [Intervention(), *found, together]


@pytest.mark.slow
@pytest.mark.parametrize("name", families("probe"))
def test_float32_costs_little_and_the_model_stays(name):
    """Float32 is bounded by the model's own rounding, not by that of an experiment.

    Let e be the largest error that float32 makes in log p of the model as it is, measured against
    the same model in float64. Of each change the log-probabilities of all choices in float32 lie
    within 4 e + 32 · 2⁻²³ (4e-6 nats) of those of the same change in float64.
    """
    model = make(name)
    question = asked(name, model)
    before, kept = dict(AttentionInterface._global_mapping), AttentionInterface.get_interface
    said(question, model, ())  # transformers puts hooks of its own where it first needs them
    hooks = hooks_of(model)
    experiment = KernelExperiment(question)
    plain = said(question, model, experiment.outputs)
    changes = changes_of(experiment)
    experiment.gradients()
    found = [next(experiment.run([Intervention()])), *experiment.run(changes)]
    with pytest.raises(ModelError):
        list(experiment.run(changes, {}))
    after = dict(AttentionInterface._global_mapping), AttentionInterface.get_interface
    assert (before, kept) == after
    assert hooks_of(model) == hooks
    assert not any("forward" in vars(module) for module in model.modules())
    np.testing.assert_array_equal(said(question, model, experiment.outputs), plain)
    with in_float64():
        true = list(KernelExperiment(asked(name, exact(model))).run(changes))
    limit = allowed([plain], true[:1])
    assert apart(found, [true[0], *true]) < limit


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_what_fails_in_the_middle_leaves_all_as_it_was(name):
    model = make(name)
    question = asked(name, model)
    experiment = KernelExperiment(question)
    changes = changes_of(experiment)
    found, kept = list(experiment.run(changes)), AttentionInterface.get_interface
    last = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]

    def fail(*_):
        raise RuntimeError("in the middle")

    with last.register_forward_hook(fail), pytest.raises(ModelError, match="in the middle"):
        list(experiment.run(changes))
    assert AttentionInterface.get_interface is kept
    assert not any("forward" in vars(module) for module in model.modules())
    seen = []
    with watch_kernels(seen.append):
        inside = AttentionInterface.get_interface
        nested = list(experiment.run(changes))
        other = list(KernelExperiment(question).run(changes))
        assert AttentionInterface.get_interface is inside
    assert seen
    assert AttentionInterface.get_interface is kept
    for one, two, three in zip(found, nested, other, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-5)  # it began in a later layer
        np.testing.assert_array_equal(one, three)


@pytest.mark.usefixtures("doubled")
@pytest.mark.parametrize("name", [one for one in families("eager") if one.values[0] not in UNREAD])
def test_a_family_without_kernels_gives_gradients_alone(name):
    model, question = in_double(name)
    own = exact(eager(make(name)))
    experiment = experiment_of(question)
    assert isinstance(experiment, EagerExperiment)
    with pytest.raises(AttentionError, match=f"'{model.config.model_type}' calls no attention"):
        next(experiment.run([Intervention()]))
    slopes = experiment.gradients()
    items = list(zip(experiment.attention.maps, slopes, strict=True))
    assert [slope.shape for _, slope in items] == [item.weights.shape for item, _ in items]
    if len(items) > 1 or name == "xglm":  # whose softmax has its heads in the batch
        return
    ((item, slope),) = items
    shapes = [(1, *weights.shape) for weights in item.weights]
    for link in links_of(experiment):
        place = item.layers.index(link.layer)
        row = item.weights[place, link.head, link.query]
        pull = slope[place, link.head, link.query]
        measured = score_slope(question, own, experiment.outputs, shapes, link, {place})
        expected = row[link.key] * (pull[link.key] - row @ pull)
        np.testing.assert_allclose(expected, measured, rtol=1e-4, atol=1e-6)


def test_weights_without_gradients_are_refused():
    with pytest.raises(AttentionError, match="'xlnet' gives out copies of its weights"):
        experiment_of(asked("xlnet", make("xlnet"))).gradients()


@pytest.mark.slow
@pytest.mark.usefixtures("doubled")
@pytest.mark.parametrize("name", families("probe"))
def test_runs_share_layers_of_the_same_changes(name, monkeypatch):
    """Each run equals one of its own, whatever ran before, and some begin in the middle."""
    _, question = in_double(name)
    experiment = KernelExperiment(question)
    maps = experiment.attention.maps
    heads = [
        HeadAt(item.stream, layer, head)
        for item in maps
        for layer in item.layers
        for head in range(item.weights.shape[1])
    ]
    tokens = [TokenAt(maps[-1].key_side, n) for n in (1, 2)]
    (link, *_) = links_of(experiment)
    row = RowAt(link.stream, link.layer, link.head, link.query)
    last = [at for at in heads if at.layer == heads[-1].layer]
    changes = [
        Intervention(heads=tuple(at for at in heads if at not in on), tokens=hidden, **more)
        for on in (last[:1], last[-1:], heads[:1], last, [])
        for hidden in ((), tuple(tokens), tuple(tokens[:1]))
        for more in ({}, {"links": (link,)}, {"rows": (row,)})
    ]
    if name not in FAST:  # each part with each other; the fast tier has every combination
        changes = changes[::4]
    means = {
        place: rows.mean(axis=1, keepdims=True) for place, rows in experiment.head_outputs().items()
    }
    begun, own = [], KernelExperiment._run_batch

    def run_batch(self, changes, done=(), *given, **named):
        begun.append(len(done))
        return own(self, changes, done, *given, **named)

    monkeypatch.setattr(KernelExperiment, "_run_batch", run_batch)
    expected = [
        [own(experiment, [change], (), instead)[0].numpy() for change in changes]
        for instead in (None, means)
    ]
    for turn in (0, 1, 0):
        found = [*experiment.run(changes, (None, means)[turn])]
        np.testing.assert_allclose(found, expected[turn], rtol=0, atol=1e-10)
    assert not experiment.blocks or max(begun) == len(experiment.blocks)
    with patch.object(layer_states, "BYTES", 1):  # no state stays
        alone = [*KernelExperiment(question).run(changes[:4], means)]
    found = [*experiment.run(changes[:4], means)]
    np.testing.assert_allclose(alone, found, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3_text", "mistral", "gpt_neox"])
def test_a_causal_text_is_run_from_its_first_change(name, monkeypatch):
    model = make(name)
    question = asked(name, model)
    experiment = KernelExperiment(question)
    length = experiment.tokens
    changes = [
        Intervention(links=(LinkAt("causal", row, 0, layer, 1),))
        for layer in experiment.attention.main.layers
        for row in (1, length // 2, length - 1)
    ]
    changes += [
        Intervention(tokens=(TokenAt(experiment.attention.main.key_side, n),))
        for n in (0, length // 2, length - 1)
    ]
    seen = []
    kept = experiment._run_batch

    def run_batch(*given, **named):
        seen.extend(given[3:])
        return kept(*given, **named)

    monkeypatch.setattr(experiment, "_run_batch", run_batch)
    found = list(experiment.run(changes))
    assert length - 1 in seen, "no run of the last token alone"
    with patch.object(interventions, "masked_output", lambda *_: None):  # as other kernels
        long = list(KernelExperiment(question).run(changes))
    monkeypatch.setattr(KernelExperiment, "_first_row", lambda *_: 0)
    whole = list(experiment.run(changes))
    assert apart(found, whole) < 1e-5
    assert apart(long, whole) < 1e-5
