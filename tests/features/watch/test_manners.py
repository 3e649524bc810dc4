"""What ran is left as it was, and what is kept is what was asked for."""

import sys
from contextlib import ExitStack
from functools import cache
from threading import Thread
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.modules import module as hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

from attnviz import load, watch
from attnviz.core.errors import AttentionError, UsageError
from attnviz.features.observer.lineage import MOST_INPUTS, Lineage, TorchCall
from tests.features.watch.models import (
    HEADS,
    SIZE,
    AllHeads,
    Cached,
    EinsumHeads,
    EncoderDecoder,
    FusedCross,
    MergedHeads,
    Residual,
    Sinks,
    ThreeInputs,
)


def state() -> tuple[Any, ...]:
    """Everything that watching changes for a while."""
    forwards = [kind.forward for kind in (nn.MultiheadAttention, nn.TransformerEncoder)]
    return (
        *forwards,
        len(hooks._global_forward_hooks),
        len(hooks._global_forward_pre_hooks),
        len(_get_current_function_mode_stack()),
        torch.backends.mha.get_fastpath_enabled(),
        torch.is_grad_enabled(),
    )


def tokens(length: int = 6, batch: int = 2) -> torch.Tensor:
    torch.manual_seed(9)
    return torch.randn(batch, length, SIZE)


def test_everything_is_restored_also_after_an_exception():
    before = state()
    model = nn.TransformerEncoderLayer(SIZE, HEADS, 16)
    with watch(model):
        assert state() != before
        model(tokens())
    assert state() == before
    with pytest.raises(AssertionError, match="embedding dimension"), watch(model):
        model(tokens()[..., :3])
    assert state() == before
    model = nn.Sequential(FusedCross(), FusedCross())
    with watch(model) as seen:
        with pytest.raises(RuntimeError):
            model(tokens()[..., :3])
        model(tokens())
    assert seen.attention().main.layers == ("0", "1")


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("kind", [AllHeads, MergedHeads])
def test_weights_are_those_before_the_same_dropout(kind, inplace):
    model, x = kind(inplace=inplace).train(), tokens()
    torch.manual_seed(3)
    before, drawn = model(x), torch.get_rng_state()
    torch.manual_seed(3)
    with watch(model) as seen:
        after = model(x)
    assert torch.equal(before, after)
    assert torch.equal(drawn, torch.get_rng_state())
    result = seen.attention()
    assert np.abs(result.weights[0] - model.weights(x)[0]).max() < 1e-6
    if kind is AllHeads:
        assert "checked" not in result.provenance.settings
        assert "1 of 1 calls ran with dropout" in result.provenance.notes[0]


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_in_torch_s_own_module_draws_the_same(need_weights):
    model, x = nn.MultiheadAttention(SIZE, HEADS, dropout=0.5, batch_first=True), tokens()
    plain = nn.MultiheadAttention(SIZE, HEADS, batch_first=True)
    plain.load_state_dict(model.state_dict())
    torch.manual_seed(3)
    before, drawn = model(x, x, x, need_weights=need_weights)[0], torch.get_rng_state()
    torch.manual_seed(3)
    with watch(model) as seen:
        after = model(x, x, x, need_weights=need_weights)[0]
    assert torch.equal(before, after)
    assert torch.equal(drawn, torch.get_rng_state())
    weights = plain(x, x, x, average_attn_weights=False)[1][0]
    assert np.abs(seen.attention().weights[0] - weights.detach().numpy()).max() < 1e-6
    assert "with dropout" in seen.attention().provenance.notes[0]


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize("kind", [AllHeads, Sinks, FusedCross])
def test_gradients_are_equal(kind):
    model, x = kind().eval(), tokens().requires_grad_()
    given = [x, *model.parameters()]
    before = torch.autograd.grad(model(x).square().sum(), given)
    with watch(model) as seen:
        after = torch.autograd.grad(model(x).square().sum(), given)
    assert all(map(torch.equal, before, after))
    assert seen.attention().weights.shape[1] == HEADS


@pytest.mark.slow
@pytest.mark.core
def test_a_training_run_goes_as_it_would():
    x, ends = tokens(), []
    for watched in (False, True):
        torch.manual_seed(4)
        model = nn.Sequential(
            EinsumHeads(), AllHeads(), nn.TransformerEncoderLayer(SIZE, HEADS, 16)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        with ExitStack() as stack:
            seen = stack.enter_context(watch(model, every=2)) if watched else None
            for _ in range(4):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        ends.append([part.detach() for part in model.parameters()])
    assert all(map(torch.equal, *ends))
    assert seen is not None
    streams = {(item.stream, name) for item in seen.attention().maps for name in item.layers}
    paths = "0", "1", "2.self_attn"
    assert streams == {(f"call {call} · self", path) for call in (1, 3) for path in paths}


def test_only_so_many_inputs_and_bytes_are_remembered():
    lineage, state = Lineage(), tokens(1)
    for _ in range(3 * MOST_INPUTS):
        other = torch.zeros(1)
        made = state + other
        lineage.add(TorchCall(torch.add, (state, other), {}), made)
        state = made
        assert len(lineage.of(state).inputs) <= MOST_INPUTS
    assert lineage.is_same_input(state, state)
    assert not lineage.is_same_input(state, other)
    model = Residual(*(FusedCross() for _ in range(4)))
    with watch(model, max_bytes=2 * HEADS * 36 * 4) as seen:
        model(tokens())
    assert seen.attention().main.layers == ("blocks.0", "blocks.1")
    assert seen.attention().provenance.notes == (
        "2 further calls were not kept: their maps would not fit into max_bytes",
    )
    with watch(model, max_bytes=10) as seen:
        model(tokens())
    with pytest.raises(AttentionError, match="none of 4 maps fits into max_bytes=10"):
        seen.attention()


@pytest.mark.parametrize("kind", [AllHeads, FusedCross])
def test_autocast_is_kept(kind):
    model, x = kind().eval(), tokens()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = model(x)
        with watch(model) as seen:
            after = model(x)
        before.float().sum().backward()
        assert torch.is_autocast_enabled("cpu")
    assert after.dtype == torch.bfloat16
    assert torch.equal(before, after)
    assert np.abs(seen.attention().weights[0] - model.weights(x)[0]).max() < 2e-2
    assert all(part.grad is not None for part in model.parameters())


def test_learned_queries_get_their_gradient_under_autocast():
    latents = nn.Parameter(torch.randn(1, 1, 4, 8))
    key = torch.randn(1, 1, 6, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with watch() as seen:
            F.scaled_dot_product_attention(latents, key, key)
        F.scaled_dot_product_attention(latents, key, key).sum().backward()
    assert latents.grad is not None
    assert seen.attention().main.layers == ("function",)


def test_watching_twice_at_once_sees_the_same_twice():
    model, x = nn.TransformerEncoderLayer(SIZE, HEADS, 16, batch_first=True).eval(), tokens()
    mixed = nn.Sequential(model, AllHeads(), FusedCross()).eval()
    with torch.no_grad():
        before = mixed(x)
        with watch() as outer, watch(mixed) as inner:
            assert torch.equal(mixed(x), before)
    first, second = outer.attention(), inner.attention()
    assert [len(item.layers) for item in first.maps] == [3]
    assert first.main.layers == tuple(f"Sequential.{name}" for name in second.main.layers)
    assert np.array_equal(first.weights, second.weights)


def test_another_thread_is_not_seen_and_cannot_watch():
    model, x = nn.TransformerEncoderLayer(SIZE, HEADS, 16, batch_first=True).eval(), tokens()
    with torch.no_grad():
        before = model(x)
    made = []

    def run() -> None:
        with torch.no_grad():
            made.append(model(x))

    with watch() as seen:
        thread = Thread(target=run)
        thread.start()
        thread.join()
    assert torch.equal(made[0], before)
    with pytest.raises(AttentionError, match="nothing ran in the block"):
        seen.attention()
    refused = []

    def run() -> None:
        with pytest.raises(UsageError) as caught, watch():
            pass
        refused.append(str(caught.value))

    before = state()
    with watch():
        thread = Thread(target=run)
        thread.start()
        thread.join()
    assert refused == ["another thread is watching: one thread at a time can"]
    assert state() == before


def test_names_and_calls_that_are_kept():
    with watch() as seen:
        Residual(AllHeads())(tokens())
        Residual(AllHeads())(tokens())
        F.scaled_dot_product_attention(tokens(), tokens(), tokens())
    layers = [name for item in seen.attention().maps for name in item.layers]
    assert layers == ["Residual.blocks.0", "Residual1.blocks.0", "function"]
    model = Cached()
    with watch(model, every=3, first=2) as seen:
        model(tokens(9))
    assert [item.layers for item in seen.attention().maps] == [("Cached",)] * 2
    assert [item.stream for item in seen.attention().maps] == ["call 1 · self", "call 4 · causal"]


@pytest.mark.slow
def test_calls_are_spread_from_the_first_to_the_last():
    model, x = nn.MultiheadAttention(SIZE, HEADS, batch_first=True), tokens()

    @cache
    def alone(number: int) -> np.ndarray:
        with watch(model) as seen:
            model(*[x + number] * 3)
        return seen.log.captures[0].weights

    def kept(count: int, **options: Any) -> list[int]:
        with watch(model, **options) as seen:
            for number in range(count):
                model(*[x + number] * 3)
        found = [one.call for one in seen.log.captures]
        for (
            one
        ) in seen.log.captures:  # each is that of its own call, also the last, read at the end
            assert np.array_equal(one.weights, alone(one.call - 1))
        return found

    for count in (1, 9, 10, 11, 57):
        found = kept(count)
        assert (found[0], found[-1], len(found)) == (1, count, min(count, 10))
        gaps = np.diff(found)
        assert len(gaps) == 0 or gaps.max() <= 3 * gaps.min() + 1
    assert kept(20, calls=3) in ([1, 9, 20], [1, 13, 20])
    assert kept(7, calls="all") == kept(7, every=1, first=100) == [1, 2, 3, 4, 5, 6, 7]
    assert kept(7, calls=(2, 7, 99)) == [2, 7]
    with pytest.raises(UsageError, match="calls=0 keeps none"), watch(model, calls=0):
        pass


def test_calls_that_are_left_out_are_counted():
    model, x = nn.MultiheadAttention(SIZE, HEADS, batch_first=True), tokens()
    with watch(model) as seen:
        for number in range(30):
            model(x + number, x, x)
    assert "10 of 30 calls are kept, spread from the first to the last" in (
        seen.attention().provenance.notes
    )
    assert repr(seen.attention()).startswith("<Result cross · MultiheadAttention · 1 layers × 10")


def test_only_modules_that_match_are_kept():
    model = nn.Transformer(SIZE, HEADS, 1, 2, 16, batch_first=True)
    with watch(model, only=["decoder.*.multihead_attn", "encoder.*"]) as seen:
        model(tokens(5), tokens(4))
    assert [item.layers for item in seen.attention().maps] == [
        ("encoder.layers.0.self_attn",),
        ("decoder.layers.0.multihead_attn", "decoder.layers.1.multihead_attn"),
    ]

    # Patterns need not name a model that is not given.
    for pattern in ("decoder.*.self_attn", "Transformer.decoder.*.self_attn"):
        with watch(only=pattern) as seen:
            model(tokens(5), tokens(4))
        (item,) = seen.attention().maps
        assert item.layers[0] == "Transformer.decoder.layers.0.self_attn"


def test_every_item_of_a_batch_is_a_record():
    model, x = nn.Sequential(AllHeads().eval(), FusedCross(1)), tokens(batch=3)
    with watch(model, batch="all") as seen:
        model(x)
    records = seen.records()
    assert [record.id for record in records] == ["0", "1", "2"]
    weights = model[0].weights(x)
    for number, record in enumerate(records):
        with watch(model, batch=number) as alone:
            model(x)
        assert np.abs(record.weights[0] - weights[number]).max() < 1e-6
        assert np.abs(record.weights - alone.attention().weights).max() < 1e-6


def test_what_no_call_has_or_cannot_be_read_is_named():
    model = FusedCross()
    with watch(model, batch=2) as seen:
        model(tokens())
    with pytest.raises(AttentionError, match="batch=2 does not exist: 2 items"):
        seen.attention()
    model = nn.Sequential(FusedCross(), AllHeads()).eval()
    bad = tokens()
    bad[0, 0, 0] = torch.nan
    with watch(model) as seen:
        assert model(bad).isnan().any()
    with pytest.raises(AttentionError, match=r"attention of '0' could not be read: .* is NaN"):
        seen.attention()


@pytest.mark.parametrize("kind", [AllHeads, FusedCross, Sinks])
def test_long_inputs_are_pooled_with_exact_links_beside(kind):
    model, x = kind().eval(), tokens(22)
    with watch(model, max_size=8) as seen:
        model(x)
    item, whole = seen.attention().main, model.weights(x)[0]
    assert (item.blocks, item.weights.shape) == ((3, 3), (1, HEADS, 8, 8))
    assert [token.text for token in item.query_tokens][-2:] == ["18–20", "21"]
    for row in range(8):
        rows = whole[:, 3 * row : 3 * row + 3]
        for column in range(8):
            mass = rows[:, :, 3 * column : 3 * column + 3].sum(-1).mean(-1)
            assert np.abs(item.weights[0, :, row, column] - mass).max() < 1e-6
    apart = np.where(np.eye(22, dtype=bool), 0, whole)
    strongest = max(item.links, key=lambda link: link.weight)
    assert abs(strongest.weight - apart.max()) < 1e-6
    assert "checked" in seen.attention().provenance.settings


@pytest.mark.parametrize(("queries", "keys"), [(31, 11), (11, 31)])
@pytest.mark.parametrize("kind", [ThreeInputs, FusedCross])
def test_long_inputs_of_two_lengths_are_pooled(kind, queries, keys):
    model, x, other = kind(), tokens(queries), tokens(keys)
    given = (x, other, other)[: 3 if kind is ThreeInputs else 2]
    whole = model.weights(*given)[0]
    with watch(model, max_size=4) as seen:
        model(*given)
    item = seen.attention().main
    assert (item.stream, item.weights.shape[2:]) == ("cross", (4, 4))
    rows, columns = item.blocks
    mass = whole[:, :rows, :columns].sum(-1).mean(-1)
    assert np.abs(item.weights[0, :, 0, 0] - mass).max() < 1e-6
    strongest = max(item.links, key=lambda link: link.weight)
    assert abs(strongest.weight - whole.max()) < 1e-6
    assert whole[int(strongest.head), strongest.query_position, strongest.key_position] > 0


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor had that any operator made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return made


@pytest.mark.slow
def test_no_matrix_of_all_tokens_is_made_of_a_fused_call():
    model, x = FusedCross(), tokens(3000, batch=1)
    with torch.no_grad(), Largest() as plain:
        model(x)
    with torch.no_grad(), watch(model, max_size=32) as seen, Largest() as watched:
        model(x)
    assert seen.attention().weights.shape == (1, HEADS, 32, 32)
    assert plain.numbers <= watched.numbers < 3000 * 3000 / 4


def test_a_part_of_a_long_input_is_exact():
    model, x = FusedCross(), tokens(22)
    whole = model.weights(x)[0]
    for options, rows, columns in (
        ({"rows": (3, 4)}, slice(3, 5), slice(None)),
        ({"window": (2, 9)}, slice(2, 10), slice(2, 10)),
    ):
        with watch(model, **options) as seen:  # type: ignore[arg-type]
            model(x)
        result = seen.attention()
        assert np.abs(result.weights[0] - whole[:, rows, columns]).max() < 1e-6
        assert result.provenance.notes
        assert "checked" in result.provenance.settings


def test_tokens_name_the_axes_that_have_as_many():
    model = EncoderDecoder()
    with watch(model, key_tokens="abcde", query_tokens="uvw") as seen:
        model(torch.randint(20, (1, 5)), torch.randint(20, (1, 3)))
    cross = seen.attention().map_of("cross")
    assert [token.text for token in cross.query_tokens] == list("uvw")
    assert [token.text for token in cross.key_tokens] == list("abcde")
    with watch(model, tokens="ab") as seen:
        model(torch.randint(20, (1, 5)), torch.randint(20, (1, 3)))
    with pytest.raises(UsageError, match="2 query tokens were given, and the maps have 3, 5"):
        seen.attention()


@pytest.mark.slow
def test_what_was_seen_is_drawn_and_saved_like_any_result(tmp_path):
    model = Residual(AllHeads(), AllHeads()).eval()
    with watch(model) as seen:
        model(tokens())
    seen.heatmap(tmp_path / "a.png")
    seen.grid(tmp_path / "b.png")
    seen.lines(tmp_path / "c.svg")
    assert "blocks.1" in seen.page(tmp_path / "a.html")
    seen.save(tmp_path / "a.npz")
    (again,) = load(tmp_path / "a.npz")
    assert again.main.layers == ("blocks.0", "blocks.1")
    assert np.array_equal(again.weights, seen.attention().weights)
    assert again.provenance.model == "Residual"


def test_fused_functions_of_other_packages_are_seen(monkeypatch):
    """Both stand in for the real functions, with their layouts: (batch, tokens, heads, size)."""

    def flash_attn_func(
        q: Any,
        k: Any,
        v: Any,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        return_attn_probs: bool = False,
    ) -> Any:
        sides = (side.transpose(1, 2) for side in (q, k, v))
        made = F.scaled_dot_product_attention(
            *sides, dropout_p=dropout_p, is_causal=causal, scale=softmax_scale
        ).transpose(1, 2)
        return (made, None, None) if return_attn_probs else made

    def memory_efficient_attention(
        query: Any, key: Any, value: Any, attn_bias: Any = None, p: float = 0.0, scale: Any = None
    ) -> Any:
        assert attn_bias is None
        return flash_attn_func(query, key, value, p, scale)

    for home, function in (
        ("flash_attn", flash_attn_func),
        ("xformers.ops", memory_efficient_attention),
    ):
        module = ModuleType(home)
        setattr(module, function.__name__, function)
        monkeypatch.setitem(sys.modules, home, module)
    user = ModuleType("user")
    user.attend = flash_attn_func  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "user", user)
    x = tokens().unflatten(-1, (HEADS, -1))
    other = tokens(4).unflatten(-1, (HEADS, -1))
    with watch(batch=1) as seen:
        first = user.attend(x, x, x, 0.0, None, True, return_attn_probs=True)[0]
        sys.modules["xformers.ops"].memory_efficient_attention(x, other, other, p=0.0)
    assert user.attend is flash_attn_func
    assert torch.equal(first, flash_attn_func(x, x, x, causal=True))
    causal, cross = seen.attention().maps
    assert (causal.stream, cross.stream) == ("call 1 · causal", "call 2 · cross")
    scores = torch.einsum("qhd,khd->hqk", x[1], other[1]) / 2
    assert np.abs(cross.weights[0] - scores.softmax(-1).numpy()).max() < 1e-6


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 4, 5, 8)])
def test_the_fused_function_is_seen_of_any_leading_axes(shape):
    torch.manual_seed(1)
    query, key = torch.randn(shape), torch.randn(shape)
    mask = torch.randn(5, 5)
    with watch(batch=0 if len(shape) == 2 else 2) as seen:
        F.scaled_dot_product_attention(query, key, key, mask)
    scores = query @ key.mT / 8**0.5 + mask
    weights = seen.attention().weights[0]
    truth = scores.softmax(-1).reshape(-1, shape[-3] if len(shape) > 3 else 1, 5, 5)
    assert np.abs(weights - truth[0 if len(shape) == 2 else 2].numpy()).max() < 1e-6


def raises(*_: Any, **__: Any) -> Any:
    raise RuntimeError("do not touch")


DUNDERS = ("bool", "len", "eq", "ne", "lt", "le", "gt", "ge", "hash", "repr", "str", "format")
DUNDERS += ("iter", "next", "contains", "getitem", "int", "float", "index", "array", "fspath")
DUNDERS += ("enter", "exit", "reduce_ex", "dir")
UNTOUCHABLE = {f"__{name}__": raises for name in DUNDERS}
Sealed = type("Sealed", (), {**UNTOUCHABLE, "__getattr__": raises, "__call__": raises})
SealedTensor = type("SealedTensor", (torch.Tensor,), dict(UNTOUCHABLE))
ATTRIBUTES = ("qkv", "proj", "drop")


class SealedModel(AllHeads):
    """Nothing but its call and its parts can be asked of it."""

    vars().update(UNTOUCHABLE)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name in ATTRIBUTES else raises()

    def forward(self, x: Any, *_: Any) -> Any:
        batch, length, size = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, HEADS, size // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        weights = ((query @ key.mT) / 2).softmax(dim=-1)
        mixed = F.scaled_dot_product_attention(query, key, value) + weights @ value
        return self.proj(mixed.transpose(1, 2).flatten(2)), Sealed()


@pytest.mark.parametrize("given", [True, False])
def test_nothing_is_asked_of_what_is_watched(given):
    model, x = SealedModel(), tokens().as_subclass(SealedTensor)
    before, _ = model(x, Sealed())
    with watch(model if given else None) as seen:
        after, made = model(x, Sealed())
    assert type(made) is Sealed
    assert torch.equal(*(one.as_subclass(torch.Tensor) for one in (before, after)))
    assert not seen.log.failures
    first, second = seen.attention().maps
    assert first.layers == second.layers == ("SealedModel",)
    truth = AllHeads.weights(model, x.as_subclass(torch.Tensor))[0]
    for item in (first, second):
        assert np.abs(item.weights[0] - truth).max() < 1e-6


@pytest.mark.parametrize("part", ["_turn", "lineage", "names", "modules"])
def test_an_error_of_ours_is_noted_and_stops_nothing(part):
    model, x = nn.TransformerEncoderLayer(SIZE, HEADS, 16, batch_first=True).eval(), tokens()
    with torch.no_grad():
        before = model(x)
        with watch(model) as seen:
            (mode,) = _get_current_function_mode_stack()
            setattr(mode, part, Sealed())
            after = model(x)
            with pytest.raises(RuntimeError, match="match last dim of query"):
                model(x[..., :3])
    assert torch.equal(before, after)
    assert set(seen.log.failures.values()) == {"RuntimeError: do not touch"}
    with pytest.raises(AttentionError, match="could not be read: RuntimeError: do not touch"):
        seen.attention()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "given"),
    [("eager", True), pytest.param("aot_eager", False, marks=pytest.mark.slow)],
)
def test_compiled_code_is_named_and_seen_run_eagerly(backend, given):
    model, x = torch.compile(AllHeads().eval(), backend=backend), tokens()
    with torch.no_grad():
        before = model(x)
        with watch(model if given else None) as seen:
            assert torch.equal(model(x), before)
        with pytest.raises(AttentionError, match=r"compiled code ran.*eager=True"):
            seen.attention()
        with watch(model if given else None, eager=True) as seen:
            assert torch.equal(model(x), before)
        assert seen.attention().main.layers == ("AllHeads",)
        assert torch.equal(model(x), before)
