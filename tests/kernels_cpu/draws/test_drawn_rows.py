"""Tokens drawn within a pass are those that `sampling` draws from its logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from forerun.kernels import AttentionShape, Plan, PlanRow, Scores
from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.attention.kv_store import KVStore
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.runtime.batch import CpuBatch
from forerun.sampling import Context, CoupledDraws, Noise, gumbel_argmax, served_logits
from forerun.types import ROOT, Proposal, ProposalBuilder, SamplingParams, Span
from tests.kernels.sources import F32, ArraySource, normal
from tests.kernels_cpu.products.test_formats import kernels

WIDTH, NUM_TOKENS = 32, 60
SHAPE = AttentionShape(1, 1, 2)
BROKEN = NUM_TOKENS - 1  # a token whose logits are not finite
SIZES = (1, 40, 8192, 8193, 20_000)


class Pass:
    """A model without layers, from tokens to logits; each token has logits of its own."""

    def __init__(
        self,
        vocab_size: int,
        scale: float,
        num_threads: int = 2,
        broken_ids: Sequence[int] = (),
        machine: Machine | None = None,
    ) -> None:
        self.kernels: CpuKernels = kernels(num_threads, machine or Machine.host())
        table: F32 = np.float32(scale) * normal(1, NUM_TOKENS, WIDTH)
        table[1] = 0  # all logits are equal
        table[2] = np.round(table[2])
        table[BROKEN, 3] = np.nan
        few = np.round(4 * normal(vocab_size, vocab_size, WIDTH))  # few values, so ties
        head: F32 = few / np.float32(16)
        head[list(broken_ids), 0] = np.nan
        source = ArraySource({"table": table, "head": head})
        self._table = self.kernels.load_matrix(source, ["table"])
        self._head = self.kernels.load_matrix(source, ["head"])
        self._store = self.kernels.new_store(SHAPE, 1, 64)

    def body(self, batch: CpuBatch, _store: KVStore) -> F32:
        return self.kernels.logits(self.kernels.embed(self._table, batch), self._head)

    def logits(self, tokens: Sequence[int]) -> F32:
        return self.kernels.run(self.body, self._batch([tokens]), self._store)

    def draw(self, *spans: tuple[Sequence[int], CoupledDraws | None]) -> Scores:
        batch = self._batch([tokens for tokens, _ in spans])
        return self.kernels.draw(self.body, batch, self._store, [draws for _, draws in spans])

    def _batch(self, spans: Sequence[Sequence[int]]) -> CpuBatch:
        rows, first = [], 0
        for tokens in spans:
            slots = np.arange(first, first + len(tokens))
            rows.append(PlanRow(Span.all_wanted(0, tuple(tokens)), slots))
            first += len(tokens)
        return self.kernels.begin(Plan(tuple(rows)), SHAPE, np.zeros(1))


def draws_for(
    proposal: Proposal, seed: int = 0, some_nodes: Sequence[int] | None = None, **options: Any
) -> CoupledDraws:
    params = SamplingParams(**options)
    return CoupledDraws(params, Noise(seed), 5, Context((1,), (2,)), (0,), proposal, some_nodes)


def expected(row: F32, draws: CoupledDraws, position: int) -> int:
    if draws.params.temperature == 0:
        return int(row.argmax())
    served = served_logits(row, draws.params, draws.context)
    return gumbel_argmax(served, draws.noise, position)


@pytest.mark.parametrize("vocab_size", SIZES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_each_row_has_the_token_of_the_oracle(vocab_size: int, scale: float) -> None:
    one = Pass(vocab_size, scale)
    tokens = range(12)
    rows = one.logits(tokens)
    num_left = 0
    for seed, temperature in enumerate((0.0, 1.0, 0.3, 1e-3, 50.0, 1e-30, 1e30)):
        alone = draws_for(Proposal.empty(), seed, temperature=temperature)
        found = one.draw(*(([token], alone) for token in tokens))
        for idx, row in enumerate(rows):
            if found.token(idx) is None:
                num_left += 1
                np.testing.assert_array_equal(found.row(idx), row)
            else:
                assert found.token(idx) == expected(row, alone, 5), (temperature, idx)
                assert found.logits[idx] is None
    assert num_left == 0  # sums too close to decide come once in 10^7 rows


def test_one_thread_draws_the_same() -> None:
    draws = draws_for(Proposal.empty(), temperature=0.9)
    spans = [([token], draws) for token in range(10)]
    found = [Pass(20_000, 2.0, num_threads).draw(*spans).all_tokens for num_threads in (1, 2)]
    assert found[0] is not None
    assert found[0] == found[1]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("num", [2, 33])  # a pass that is recorded, and one too long for it
def test_a_broken_row_is_left_with_its_logits(temperature: float, num: int) -> None:
    one, draws = Pass(300, 1.0), draws_for(Proposal.empty(), temperature=temperature)
    tokens = [BROKEN, *range(num - 1)]
    found = one.draw(*(([token], draws) for token in tokens))
    assert found.token(0) is None
    assert not np.isfinite(found.row(0)).any()
    assert found.all_tokens is None
    assert all(found.token(idx) is not None for idx in range(1, num))
    again = found.row(0).copy()
    one.draw(*(([token], draws) for token in tokens[::-1]))
    np.testing.assert_array_equal(found.row(0), again)  # the row is the caller's own


@pytest.mark.parametrize("broken_id", [0, 7, 8191, 8192, 8209])
def test_one_broken_logit_is_enough(broken_id: int) -> None:
    draws = draws_for(Proposal.empty(), temperature=0.0)
    found = Pass(8210, 1.0, broken_ids=[broken_id]).draw(([3], draws))
    assert found.token(0) is None
    assert np.flatnonzero(np.isnan(found.row(0))).tolist() == [broken_id]


def test_noise_is_drawn_along_the_accepted_path_alone() -> None:
    """After a guess that is not accepted, no token is drawn and no logits are returned."""
    one, draws = Pass(50, 1.0), draws_for(Proposal.empty(), temperature=1.0)
    after = [draws_for(Proposal.empty(), temperature=1.0) for _ in range(2)]
    (right,) = one.draw(([7], draws)).all_tokens or ()
    builder = ProposalBuilder()
    wrong = builder.add(ROOT, right + 1)
    held = builder.add(ROOT, right)
    below = [builder.add(node, 3) for node in (wrong, held)]
    tree = draws_for(builder.build(), temperature=1.0)
    tokens = [7, right + 1, right, 3, 3]
    for spans in ([(tokens, tree)], [([9], after[0]), (tokens, tree), ([8], after[1])]):
        found = one.draw(*spans)
        mine = found[len(spans) // 2 :][: len(tokens)]
        assert mine.token(0) == right
        assert mine.token(1 + held) == expected(one.logits([right])[0], tree, 6)
        assert mine.token(1 + wrong) is mine.token(1 + below[0]) is None
        assert mine.logits[1 + wrong] is None
        is_asked = mine.token(1 + held) == 3
        assert (mine.token(1 + below[1]) is not None) == is_asked


def test_rows_behind_one_that_is_left_are_drawn() -> None:
    one, draws = Pass(50, 1.0), draws_for(Proposal.chain([4]), temperature=1.0)
    found = one.draw(([BROKEN, 4], draws))
    assert found.token(0) is None
    assert found.token(1) == expected(one.logits([4])[0], draws, 6)


def test_some_nodes_are_all_drawn() -> None:
    """A draft model asks for its last level, whatever is drawn at the nodes above."""
    one = Pass(50, 1.0)
    draws = draws_for(Proposal.chain([4, 5]), some_nodes=(0, 1), temperature=1.0)
    found = one.draw(([4, 5], draws))
    rows = one.logits([4, 5])
    assert found.all_tokens == [expected(rows[0], draws, 6), expected(rows[1], draws, 7)]


@pytest.mark.parametrize(
    "options",
    [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {"logit_bias": {3: 1.0}}, None],
    ids=str,
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_needs_more_than_noise_brings_logits(
    options: dict[str, Any] | None, temperature: float
) -> None:
    """Such a request gets logits; other requests of the pass are still drawn."""
    one, chain = Pass(50, 1.0), Proposal.chain([5, 6])
    plain = draws_for(Proposal.empty(), temperature=temperature)
    other = None if options is None else draws_for(chain, temperature=1.0, **options)
    rows = one.logits([3, 4, 5, 6, 7])
    for _ in range(2):
        found = one.draw(([3], plain), ([4, 5, 6], other), ([7], plain))
        first, last = (expected(rows[idx], plain, 5) for idx in (0, 4))
        assert found.tokens == [first, None, None, None, last]
        assert found.logits[0] is found.logits[4] is None
        for idx in (1, 2, 3):
            np.testing.assert_array_equal(found.row(idx), rows[idx])
        alone = one.draw(([4, 5, 6], other))
        assert alone.tokens is None
        np.testing.assert_array_equal(alone.all_rows(), rows[1:4])


def test_temperature_0_does_not_ask_for_truncation() -> None:
    one, draws = Pass(50, 1.0), draws_for(Proposal.empty(), temperature=0.0, top_k=3, top_p=0.5)
    assert one.draw(([3], draws)).all_tokens == [int(one.logits([3])[0].argmax())]
