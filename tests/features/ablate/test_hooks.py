"""Heads switched off in a model of one's own, against hooks before its output projections."""

from contextlib import ExitStack, contextmanager

import pytest
import torch
from transformers.modeling_utils import AttentionInterface

import attnviz
from attnviz.core.effects import HeadAt, Intervention
from attnviz.core.errors import AttentionError, UsageError
from attnviz.features.experiments.kernel import KernelExperiment
from tests.features.experiments.test_families import families, said
from tests.hugging_face.tiny_heads import asked, make

pytestmark = [pytest.mark.models, pytest.mark.usefixtures("silence")]

HEADS = 4
IDS = torch.arange(5, 17).view(2, 6)
MASK = torch.ones_like(IDS)
MASK[0, 4:] = 0

PROJECTIONS = {
    "gpt2": {"": "transformer.h.{}.attn.c_proj"},
    "bert": {"": "bert.encoder.layer.{}.attention.output.dense"},
    "llama": {"": "model.layers.{}.self_attn.o_proj"},
    "gpt_oss": {"": "model.layers.{}.self_attn.o_proj"},
    "t5": {
        "encoder": "encoder.block.{}.layer.0.SelfAttention.o",
        "decoder": "decoder.block.{}.layer.0.SelfAttention.o",
        "cross": "decoder.block.{}.layer.1.EncDecAttention.o",
    },
    "bart": {
        "encoder": "model.encoder.layers.{}.self_attn.out_proj",
        "decoder": "model.decoder.layers.{}.self_attn.out_proj",
        "cross": "model.decoder.layers.{}.encoder_attn.out_proj",
    },
}
"""Where heads are joined, by stream; nothing of this comes from kernels."""
CASES = [(name, stream) for name, own in PROJECTIONS.items() for stream in own]


@contextmanager
def hooked(model, heads, positions=None):
    """Each (projection, head) set to 0, or to its mean over the positions of each text."""

    def before(head):
        def change(module, given):
            rows = given[0].clone().unflatten(-1, (HEADS, -1))
            if positions is None:
                rows[..., head, :] = 0
            else:
                for row, kept in enumerate(positions.bool()):
                    rows[row, :, head] = (
                        given[0].unflatten(-1, (HEADS, -1))[row, kept, head].mean(0)
                    )
            return (rows.flatten(-2),)

        return change

    with ExitStack() as stack:
        for path, head in heads:
            hook = model.get_submodule(path).register_forward_pre_hook(before(head))
            stack.enter_context(hook)
        yield


def given(model, mask=MASK):
    pair = {"decoder_input_ids": IDS + 7, "decoder_attention_mask": mask}
    more = pair if model.config.is_encoder_decoder else {}
    return {"input_ids": IDS, "attention_mask": mask, **more}


def logits(model, mask=MASK):
    with torch.no_grad():
        return model(**given(model, mask)).logits


def enter(model, heads, **how):
    with attnviz.ablate_heads(model, heads, **how):
        pass


def named(stream, layer, head):
    return (stream, layer, head) if stream else (layer, head)


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(("name", "stream"), CASES)
def test_heads_are_off_as_by_a_hook_before_the_output(name, stream, implementation):
    model = make(name)
    if implementation == "sdpa" and model.config._attn_implementation == "eager":
        pytest.skip("eager only")
    model.set_attn_implementation(implementation)
    plain = logits(model)
    path = PROJECTIONS[name][stream]
    with hooked(model, [(path.format(1), 3), (path.format(0), 1)]):
        expected = logits(model)
    with attnviz.ablate_heads(model, [named(stream, 1, 3), f"{stream or 'self'}.0.1"]):
        found = logits(model)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert not torch.allclose(found, plain, atol=1e-5)
    assert torch.equal(logits(model), plain)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("name", "stream"), CASES)
def test_a_mean_is_over_the_text_without_its_padding(name, stream, side):
    model = make(name)
    mask = MASK if side == "right" else MASK.flip(1)
    path = PROJECTIONS[name][stream].format(1)
    with hooked(model, [(path, 2)], mask):
        expected = logits(model, mask)
    with attnviz.ablate_heads(model, heads=[named(stream, 1, 2)], by="mean"):
        found = logits(model, mask)
    kept = mask.bool()
    torch.testing.assert_close(found[kept], expected[kept], atol=3e-6, rtol=1e-5)
    assert not torch.allclose(found[kept], logits(model, mask)[kept], atol=1e-5)


@pytest.mark.parametrize("by", ["zero", "mean"])
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_a_model_trains_with_heads_off(name, by):
    model = make(name).train()
    stream = "decoder" if name == "t5" else ""
    path = PROJECTIONS[name][stream].format(1)
    found = []
    for off in (
        hooked(model, [(path, 0)], None if by == "zero" else MASK),
        attnviz.ablate_heads(model, [named(stream, 1, 0)], by=by),
    ):
        model.zero_grad()
        torch.manual_seed(0)
        with off:
            model(**given(model)).logits[MASK.bool()].logsumexp(-1).sum().backward()
        found.append({name: one.grad.clone() for name, one in model.named_parameters()})
    for parameter, gradient in found[0].items():
        torch.testing.assert_close(found[1][parameter], gradient, atol=1e-4, rtol=1e-4)


def test_checkpointed_layers_and_autocast_stay():
    model = make("llama").train()
    gradients = []
    for checkpointed in (False, True):
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.zero_grad()
        with attnviz.ablate_heads(model, [(0, 2)]):
            model(**given(model), use_cache=False).logits.logsumexp(-1).sum().backward()
        gradients.append(model.model.layers[0].self_attn.v_proj.weight.grad.clone())
    torch.testing.assert_close(*gradients)
    model = make("bert")
    path = PROJECTIONS["bert"][""].format(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with hooked(model, [(path, 1)]):
            expected = logits(model)
        with attnviz.ablate_heads(model, [(0, 1)]):
            found = logits(model)
        with attnviz.ablate_heads(model, [(0, 1)], by="mean"):
            mean = logits(model)
    assert found.dtype == expected.dtype == mean.dtype
    assert torch.equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_what_is_written_is_written_with_heads_off(name, cached):
    model = make(name)
    stream = "cross" if name == "bart" else ""
    off = [(layer, head) for layer in range(2) for head in range(3)]
    how = {"max_new_tokens": 6, "do_sample": False, "use_cache": cached, "num_beams": 2}

    def write():
        return model.generate(IDS, attention_mask=torch.ones_like(IDS), **how)

    plain = write()
    path = PROJECTIONS[name][stream]
    with hooked(model, [(path.format(layer), head) for layer, head in off]):
        expected = write()
    with attnviz.ablate_heads(model, [named(stream, *one) for one in off]):
        assert torch.equal(write(), expected)
    assert not torch.equal(expected, plain)
    assert torch.equal(write(), plain)


@pytest.mark.parametrize(("name", "stream"), [("gpt2", ""), ("bart", "decoder"), ("bart", "cross")])
def test_a_mean_needs_every_position_in_the_pass(name, stream):
    model = make(name)
    how = {"max_new_tokens": 3, "do_sample": False, "attention_mask": torch.ones_like(IDS)}
    with attnviz.ablate_heads(model, [named(stream, 0, 0)], by="mean"):
        with pytest.raises(UsageError, match=r"here are 1 of \d: give use_cache=False"):
            model.generate(IDS, use_cache=True, **how)
        model.generate(IDS, use_cache=False, **how)


def test_everything_is_as_it_was_however_a_block_ends():
    model, hand_out = make("gpt2"), AttentionInterface.get_interface
    plain = logits(model)

    def endless():
        with attnviz.ablate_heads(model, [(1, 1)]):
            while True:
                yield logits(model)

    with pytest.raises(ZeroDivisionError), attnviz.ablate_heads(model, [(0, 0)]):
        raise ZeroDivisionError
    assert torch.equal(logits(model), plain)
    with attnviz.ablate_heads(model, [(0, 0)]):
        alone = logits(model)
        with attnviz.ablate_heads(model, [(1, 1)]):
            both = logits(model)
        assert torch.equal(logits(model), alone)
    with attnviz.ablate_heads(model, [(1, 1), (0, 0)]):
        assert torch.equal(logits(model), both)
    first, second = endless(), endless()
    assert torch.equal(next(first), next(second))
    first.close()  # the block that was entered first ends first
    assert not torch.equal(next(second), plain)
    second.close()
    assert torch.equal(logits(model), plain)
    assert AttentionInterface.get_interface is hand_out
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_passes_of_other_models_are_told_apart():
    inner, other = make("bert"), make("bert")
    outer = torch.nn.ModuleDict({"reader": inner})
    with attnviz.ablate_heads(outer, [(1, 0)]):
        assert not torch.equal(logits(inner), logits(other))
    assert torch.equal(logits(inner), logits(other))
    with pytest.raises(UsageError, match="takes one transformers model, and ModuleList holds sev"):
        enter(torch.nn.ModuleList([inner, other]), [(1, 0)])
    model = make("bert")
    attention = model.bert.encoder.layer[1].attention.self
    attention.forward = lambda hidden, *_, **__: (hidden, None)
    missed = pytest.raises(AttentionError, match="did not go through the attention kernels")
    with attnviz.ablate_heads(model, [(1, 0)]), missed:
        logits(model)
    with attnviz.ablate_heads(model, [(0, 0)]):
        logits(model)


@pytest.mark.parametrize(
    ("name", "heads", "message"),
    [
        ("gpt2", [(2, 0)], r"there is no head 2\.0: layers 0, 1"),
        ("gpt2", [(0, 4)], "there is no head 4: heads 0 to 3"),
        ("gpt2", [(0, -1)], r"there is no head 0\.-1"),
        ("gpt2", [("cross", 0, 0)], r"head \('cross', 0, 0\) names no stream of this model"),
        ("t5", [(0, 0)], r"names no stream of this model: write \(encoder, decoder, cross, …\)"),
        ("t5", ["decoder.7.0"], r"there is no head 7\.0: layers 0, 1, 2"),
    ],
)
def test_heads_that_do_not_exist_are_refused(name, heads, message):
    with pytest.raises(UsageError, match=message):
        enter(make(name), heads)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bloom", "'bloom' calls no attention kernel"),
        ("albert", "'albert' has 1 attention modules for 2 layers"),
        ("diffllama", "each head subtracts one attention from another"),
    ],
)
def test_heads_that_cannot_be_told_apart_are_refused(name, message):
    with pytest.raises(AttentionError, match=message):
        enter(make(name), [(0, 0)])


def test_an_encoder_that_attends_in_blocks_has_no_heads_to_switch_off():
    with pytest.raises(UsageError, match=r"names no stream of this model: write \(decoder, cross"):
        enter(make("longt5"), [("encoder", 0, 1)])


def test_other_and_compiled_models_are_refused():
    with pytest.raises(UsageError, match="takes one transformers model, and Linear holds none"):
        enter(torch.nn.Linear(2, 2), [(0, 0)])
    with pytest.raises(UsageError, match="unknown replacement 'median'"):
        enter(make("gpt2"), [(0, 0)], by="median")
    model = make("gpt2")
    model._compiled_call_impl = model._call_impl  # as model.compile() does, seconds later
    for compiled in (model, torch.nn.ModuleDict({"_orig_mod": make("gpt2")})):
        with pytest.raises(UsageError, match="a compiled model does not ask for its attention"):
            enter(compiled, [(0, 0)])


@pytest.mark.slow
@pytest.mark.parametrize("name", families("probe"))
def test_in_every_family_it_is_what_the_experiment_measures(name):
    model = make(name)
    experiment = KernelExperiment(asked(name, model))
    part, outputs = experiment.encoding.part, experiment.outputs
    for item in experiment.attention.maps:
        layer, head = item.layers[-1], len(item.heads) - 1
        (expected,) = experiment.run([Intervention((HeadAt(item.stream, layer, head),))])
        try:
            with attnviz.ablate_heads(part, [(item.stream, int(layer), head)]):
                found = said(asked(name, model), model, outputs)
        except AttentionError as error:
            assert name in ("albert", "zamba2"), error  # noqa: PT017
            return
        torch.testing.assert_close(
            torch.tensor(found), torch.tensor(expected), atol=1e-6, rtol=1e-5
        )
