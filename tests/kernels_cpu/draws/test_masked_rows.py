"""Draws with masks within a pass give the tokens that `sampling` draws from masked logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forerun.errors import InvalidGrammar, NothingAllowed
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.sampling import (
    Context,
    CoupledDraws,
    Noise,
    checked_argmax,
    gumbel_argmax,
    ranked_logits,
    served_logits,
)
from forerun.types import ROOT, Grammar, Proposal, ProposalBuilder, SamplingParams
from forerun.types import StructuredOutputsParams as Fitting
from tests.kernels.sources import F32
from tests.kernels_cpu.draws.test_drawn_rows import BROKEN, Pass, draws_for
from tests.kernels_cpu.runtime.plain_decoding import Decoding

WRITTEN = (2,)
TEMPERATURES = (0.0, 1.0, 0.3, 1e-3, 50.0, 1e-30, 1e30)
PASSES = {size: Pass(size, 2.0) for size in (1, 40, 8192, 8209, 20_000)}


@dataclass
class Listed:
    """A grammar as a table of what may follow each output; None: it does not bind there."""

    allowed: dict[tuple[int, ...], bytes | None]
    ends: set[tuple[int, ...]] = field(default_factory=set)
    is_broken: bool = False

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        return self.allowed.get((*output, *more), b"") is not None

    def may_loosen(self, output: Sequence[int]) -> bool:  # noqa: ARG002
        return False

    def allowed_bits(self, output: Sequence[int], more: Sequence[int] = ()) -> bytes:
        if self.is_broken:
            raise InvalidGrammar("too much")
        found = self.allowed[(*output, *more)]
        assert found is not None, "asked where it does not bind"
        return found

    def is_over(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        return (*output, *more) in self.ends

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        written = [(*output, *tokens[: num + 1]) for num in range(len(tokens))]
        return sum(each in self.allowed for each in written)


def bits(tokens: Sequence[int]) -> bytes:
    found = np.zeros(max(tokens, default=-1) + 1, bool)
    found[list(tokens)] = True
    return np.packbits(found, bitorder="little").tobytes()


def masked(
    grammar: Grammar | None, proposal: Proposal | None = None, seed: int = 0, **options: Any
) -> CoupledDraws:
    wanted = None if grammar is None else Fitting(regex="a")
    params = SamplingParams(structured_outputs=wanted, **options)
    context = Context((1,), WRITTEN, grammar)
    return CoupledDraws(params, Noise(seed), 5, context, (0,), proposal or Proposal.empty())


def expected(row: F32, draws: CoupledDraws, node: int = ROOT) -> int:
    path = draws.proposal.path_tokens(node)
    context = draws.context.extended(path)
    if draws.params.temperature == 0:
        return checked_argmax(ranked_logits(row, draws.params, context))
    return gumbel_argmax(served_logits(row, draws.params, context), draws.noise, 5 + len(path))


@pytest.mark.parametrize("size", PASSES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_each_row_has_the_token_of_the_oracle(size: int, data: st.DataObject) -> None:
    """Dense masks and sparse ones, also shorter and longer than the row of logits."""
    one, random = PASSES[size], np.random.default_rng(data.draw(st.integers(0, 2**32)))
    draws: list[CoupledDraws] = []
    for temperature in TEMPERATURES:
        num_bits = max(1, size + data.draw(st.integers(-40, 40)))
        share = data.draw(st.sampled_from([1.0, 0.5, 0.01, 1 / size]))
        chosen = random.random(num_bits) < share
        chosen[random.integers(min(size, num_bits))] = True
        grammar = Listed({WRITTEN: np.packbits(chosen, bitorder="little").tobytes()})
        seed = data.draw(st.integers(0, 2**64 - 1))
        draws.append(masked(grammar, seed=seed, temperature=temperature))
    tokens = random.integers(0, BROKEN, len(draws)).tolist()
    rows = one.logits(tokens)
    found = one.draw(*(([token], draw) for token, draw in zip(tokens, draws, strict=True)))
    assert found.tokens == [expected(*each) for each in zip(rows, draws, strict=True)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("size", [40, 8209, 20_000])
def test_one_token_is_left(size: int, temperature: float) -> None:
    """At the edges of the kernel's groups and pieces, and after the last whole group."""
    edges = {0, 1, 15, 16, 31, 32, size // 16 * 16, size - 1, 8191, 8192, 8207, 8208}
    for token in sorted(token for token in edges if token < size):
        draws = masked(Listed({WRITTEN: bits([token])}), temperature=temperature)
        assert PASSES[size].draw(([3], draws)).tokens == [token]


@pytest.mark.parametrize("instruction_set", [each.name for each in Machine.offered()[1:]])
def test_other_instruction_sets_draw_the_same(instruction_set: str) -> None:
    sizes, random = (40, 8209), np.random.default_rng(5)
    for size in sizes:
        other = Pass(size, 2.0, machine=Machine.host(instruction_set))
        for share in (0.5, 0.01):
            chosen = bits([size - 1, *np.flatnonzero(random.random(size) < share).tolist()])
            draws = [masked(Listed({WRITTEN: chosen}), temperature=t) for t in TEMPERATURES]
            spans = [([1 + idx], draw) for idx, draw in enumerate(draws)]
            assert other.draw(*spans).tokens == PASSES[size].draw(*spans).tokens


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_equal_logits_go_to_the_first_that_may_come(temperature: float) -> None:
    """Token 1 of the table makes all logits equal."""
    one = PASSES[20_000]
    for allowed in ([17, 18, 9000], [8191, 8192], [15, 16, 31, 19_999], [12_345]):
        draws = masked(Listed({WRITTEN: bits(allowed)}), temperature=temperature)
        row = one.logits([1])[0]
        assert one.draw(([1], draws)).tokens == [expected(row, draws)]
        if temperature == 0:
            assert expected(row, draws) == min(allowed)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("allowed", [b"", b"\0", bytes(9), b"\0" * 5 + b"\xff" * 9], ids=len)
def test_where_nothing_may_come_the_row_is_left(allowed: bytes, temperature: float) -> None:
    """Bits past the 40 logits allow nothing."""
    one, draws = PASSES[40], masked(Listed({WRITTEN: allowed}), temperature=temperature)
    free = draws_for(Proposal.empty(), temperature=temperature)
    found = one.draw(([3], free), ([4], draws), ([5], free))
    assert [token is None for token in found.tokens or ()] == [False, True, False]
    np.testing.assert_array_equal(found.row(1), one.logits([4])[0])
    with pytest.raises(NothingAllowed):
        expected(found.row(1), draws)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("broken_id", [0, 16, 8192, 8209])
def test_one_broken_logit_is_enough(broken_id: int, temperature: float) -> None:
    """Also where the mask rules the broken token out."""
    one = Pass(8210, 1.0, broken_ids=[broken_id])
    draws = masked(Listed({WRITTEN: bits([7, 8200])}), temperature=temperature)
    assert one.draw(([3], draws)).tokens == [None]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_each_node_has_its_own_mask(temperature: float) -> None:
    """A guess that its parent's mask rules out is not reached, so nothing is drawn after it."""
    one, rows = PASSES[40], PASSES[40].logits([9, 4, 5, 6, 7])
    builder = ProposalBuilder()
    left, right = builder.add(ROOT, 4), builder.add(ROOT, 5)
    below, wrong = builder.add(right, 6), builder.add(left, 7)
    tree = builder.build()
    allowed = {WRITTEN: [5], (2, 4): [1, 2], (2, 5): [6], (2, 5, 6): [3, 11, 39]}
    grammar = Listed({output: bits(tokens) for output, tokens in allowed.items()})
    draws = masked(grammar, tree, temperature=temperature)
    found = one.draw(([9, 4, 5, 6, 7], draws))
    for node in (ROOT, right, below):
        assert found.token(1 + node) == expected(rows[1 + node], draws, node)
    for node in (left, wrong):
        assert found.token(1 + node) is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_grammar_that_begins_on_the_way(temperature: float) -> None:
    """Where the grammar does not bind yet, only the other options limit what may come."""
    one, rows = PASSES[40], PASSES[40].logits([9, 4, 5])
    grammar = Listed({WRITTEN: None, (2, 4): None, (2, 4, 5): bits([3, 11, 39])})
    for allowed in (None, (3, 4, 5, 11)):
        options = {"temperature": temperature, "allowed_token_ids": allowed}
        draws = masked(grammar, Proposal.chain([4, 5]), 0, **options)
        token = expected(rows[0], draws)
        assert one.draw(([9, 4, 5], draws)).token(0) == token
        draws = replace(draws, some_nodes=(0, 1))
        found = one.draw(([4, 5], draws))
        assert found.tokens == [expected(rows[1 + node], draws, node) for node in (0, 1)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_is_too_much_for_a_grammar_is_left(temperature: float) -> None:
    one, draws = PASSES[40], masked(Listed({}, is_broken=True), temperature=temperature)
    found = one.draw(([3], draws))
    assert found.tokens == [None]
    np.testing.assert_array_equal(found.row(0), one.logits([3])[0])


@pytest.mark.parametrize("allowed", [None, (3, 4)])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_behind_the_end_of_a_text_all_may_come(
    temperature: float, allowed: tuple[int, ...] | None
) -> None:
    """Whatever is drawn there is cut off."""
    one, grammar = PASSES[40], Listed({}, {WRITTEN})
    draws = masked(grammar, temperature=temperature, allowed_token_ids=allowed)
    for token in range(6):
        assert one.draw(([token], draws)).tokens == [expected(one.logits([token])[0], draws)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("grammar", [None, Listed({WRITTEN: bits(range(5, 19))})], ids=str)
def test_allowed_token_ids(grammar: Listed | None, temperature: float) -> None:
    one, ids = PASSES[40], (3, 7, 18, 30)
    draws = masked(grammar, Proposal.empty(), 4, temperature=temperature, allowed_token_ids=ids)
    for token in range(12):
        row = one.logits([token])[0]
        assert one.draw(([token], draws)).tokens == [expected(row, draws)]


def test_masks_beside_all_else_in_one_pass() -> None:
    """The same recording is replayed with the rows in other orders."""
    one, grammar = PASSES[20_000], Listed({WRITTEN: bits(range(3, 19_000, 7))})
    each = [
        masked(grammar, temperature=0.0),
        masked(grammar, temperature=0.7),
        masked(None, temperature=0.9),
        masked(None, temperature=0.0),
        masked(grammar, temperature=0.7, top_p=0.9),
        masked(None, temperature=0.7, presence_penalty=1.0),
        masked(grammar, temperature=0.0, min_tokens=4),
    ]
    for order in (range(7), range(6, -1, -1), (3, 1, 4, 0, 5, 2, 6)):
        found = one.draw(*(([idx], each[idx]) for idx in order))
        for row, idx in enumerate(order):
            if idx < 4:
                assert found.token(row) == expected(one.logits([idx])[0], each[idx])
            else:
                assert found.token(row) is None
                np.testing.assert_array_equal(found.row(row), one.logits([idx])[0])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_pass_that_began_without_a_mask_is_not_one_with_it(temperature: float) -> None:
    """A pass may begin before it is asked for; it is dropped if a mask has come in between."""
    params = SamplingParams(temperature=temperature, seed=7)
    limited = params.with_(allowed_token_ids=(1, 2, 3))
    found = []
    for is_early in (True, False):
        decoding = Decoding(is_early=is_early)
        text, other = decoding.text([3, 1, 4], params), decoding.text([5, 1, 4], params)
        for _ in range(3):
            decoding.go_on(3, text, other)
            assert (decoding.kernels._replays._begun is not None) is is_early
            text.params = limited
            decoding.go_on(3, text, other)
            assert decoding.kernels._replays._begun is None
            assert set(text.tokens[-3:]) <= {1, 2, 3}
            text.params = params
        found.append((text.tokens, other.tokens))
    assert found[0] == found[1]
