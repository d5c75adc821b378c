"""Each classic mistake, planted, must be seen by the enumeration that proves the law.

A proof that cannot fail proves nothing. The figures are the total variation from p that DESIGN
measured on its cases; ours differ, so the test asks only for far more than rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from forerun.sampling import Probs, Stream, UniformNoise
from forerun.types import ROOT, Draw, Proposal, ProposalBuilder
from forerun.verify import rejection
from tests.verify.test_law_rejection import Verify, emitted_law, verify_rejection, worst_error
from tests.worlds import Drafter, TableModel, drawn_tree

VISIBLE = 1e-3


class Rerouted:
    """Noise whose streams are not kept apart: `stream` is served from the drafter's draws."""

    def __init__(self, noise: UniformNoise, stream: Stream) -> None:
        self._noise, self._stream = noise, stream

    def uniform(self, stream: Stream, round_idx: int, draw_idx: int) -> float:
        return self._noise.uniform(
            Stream.DRAFT if stream is self._stream else stream, round_idx, draw_idx
        )


def rerouted(stream: Stream) -> Verify:
    return lambda proposal, target, noise: verify_rejection(
        proposal, target, Rerouted(noise, stream)
    )


def altered(drafter: Drafter, change: Callable[[Proposal], Proposal]) -> Drafter:
    return lambda uniform: change(drafter(uniform))


def drop_unlikely(proposal: Proposal) -> Proposal:
    """Drop a guess after drawing it, by its own q."""
    probs_q = proposal.draws[0].probs_q
    assert probs_q is not None
    return proposal if probs_q[proposal.tokens[0]] >= 0.3 else Proposal.empty()


def merge_duplicates(proposal: Proposal) -> Proposal:
    first = {draw.node: draw for draw in reversed(proposal.draws)}
    return replace(proposal, draws=tuple(first[node] for node in sorted(first)))


def sort_by_q(proposal: Proposal) -> Proposal:
    def own_q(draw: Draw) -> float:
        assert draw.probs_q is not None
        return float(draw.probs_q[proposal.tokens[draw.node]])

    return replace(proposal, draws=tuple(sorted(proposal.draws, key=own_q, reverse=True)))


def record_unconditional_q(proposal: Proposal) -> Proposal:
    first = proposal.draws[0].probs_q
    return replace(proposal, draws=tuple(Draw(draw.node, first) for draw in proposal.draws))


def residual_is_p(probs_p: Probs, probs_q: Probs) -> Probs:  # noqa: ARG001
    return probs_p


def final_from_parent(
    proposal: Proposal, target: TableModel, noise: UniformNoise
) -> tuple[int, ...]:
    """p one node too early: an off-by-one between rows of logits and nodes."""

    def probs_at(node: int) -> np.ndarray:
        parent = ROOT if node == ROOT else proposal.tree.parents[node]
        return target.probs(proposal.path_tokens(parent))

    return rejection(proposal, probs_at, noise, round_idx=0).tokens


def worse_than_none(drafter: Drafter, verify: Verify = verify_rejection) -> float:
    target = TableModel(4, seed=2, zeros=0.0)
    return worst_error(emitted_law(drafter, target, verify), target)


def siblings(num: int, *, with_replacement: bool = True) -> Drafter:
    return drawn_tree([TableModel(4, seed=77, zeros=0.0)], [num], replace=with_replacement)


MISTAKES: dict[str, Callable[[], float]] = {
    "residual reuses draft noise": lambda: worse_than_none(siblings(1), rerouted(Stream.FINAL)),
    "test uniform taken from draft noise": lambda: worse_than_none(
        siblings(1), rerouted(Stream.TEST)
    ),
    "guess dropped after drawing by its q": lambda: worse_than_none(
        altered(siblings(1), drop_unlikely)
    ),
    "duplicate siblings merged": lambda: worse_than_none(altered(siblings(3), merge_duplicates)),
    "siblings sorted by q": lambda: worse_than_none(
        altered(siblings(2, with_replacement=False), sort_by_q)
    ),
    "without replacement, unconditional q recorded": lambda: worse_than_none(
        altered(siblings(2, with_replacement=False), record_unconditional_q)
    ),
    "logits one row off": lambda: worse_than_none(
        drawn_tree([TableModel(4, seed=77)], [1, 1]), final_from_parent
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistake_changes_the_law(mistake: str) -> None:
    assert MISTAKES[mistake]() > VISIBLE


@pytest.mark.parametrize("num", [1, 2, 3])
@pytest.mark.parametrize("with_replacement", [True, False])
def test_same_worlds_without_the_mistake_are_exact(num: int, with_replacement: bool) -> None:
    assert worse_than_none(siblings(num, with_replacement=with_replacement)) < 1e-9


def test_resampling_from_p_instead_of_the_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["forerun.verify.rejection"], "residual", residual_is_p)
    assert worse_than_none(siblings(1)) > VISIBLE


def test_merging_keeps_multiplicity() -> None:
    """The builder that makes one node of a repeated token must not lose the second draw."""
    q = np.array([0.5, 0.5])
    builder = ProposalBuilder()
    assert builder.add(ROOT, 1, q) == builder.add(ROOT, 1, q) == 0
    assert len(builder.build()) == 1
    assert len(builder.build().draws) == 2
