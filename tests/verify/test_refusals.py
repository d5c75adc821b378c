"""What `verify` refuses, and how little it takes for a residual to count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forerun.errors import InvalidDistribution, InvalidProposal
from forerun.sampling import Noise, Probs, Stream
from forerun.types import ROOT, Origin, Proposal, ProposalBuilder, Verdict
from forerun.verify import coupled, greedy, lenient, lenient_greedy, rejection, residual
from forerun.verify.rejection import law_of

GOOD = np.array([0.0, 1.0, 0.0])
BROKEN = {
    "sums to 0.9": np.array([0.4, 0.5, 0.0]),
    "negative": np.array([-0.1, 1.1, 0.0]),
    "NaN": np.array([0.5, np.nan, 0.5]),
    "empty": np.array([]),
    "two rows": np.array([[0.5, 0.5]]),
}
JUDGES: dict[str, Callable[[Proposal, Callable[[int], Probs]], Verdict]] = {
    "rejection": lambda proposal, probs_at: rejection(proposal, probs_at, Noise(0), 0),
    "lenient": lambda proposal, probs_at: lenient(proposal, probs_at, Noise(0), 0, 0.5),
    "lenient_greedy": lambda proposal, probs_at: lenient_greedy(proposal, probs_at, 0.5),
}


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_broken_p_is_refused_at_every_node(judge: str, kind: str, depth: int) -> None:
    rows = [GOOD] * depth + [BROKEN[kind]]
    with pytest.raises(InvalidDistribution):
        JUDGES[judge](Proposal.chain([1] * depth), lambda node: rows[node + 1])


@pytest.mark.parametrize(
    "row", [[np.nan, 1.0], [1.0, np.nan], [np.inf, 1.0], [-np.inf, -np.inf], [], [[1.0, 2.0]]]
)
@pytest.mark.parametrize("depth", [0, 1])
def test_broken_logits_are_refused_by_greedy(row: list[Any], depth: int) -> None:
    rows = [np.array([0.0, 1.0])] * depth + [np.array(row)]
    with pytest.raises(InvalidDistribution):
        greedy(Proposal.chain([1] * depth), lambda node: rows[node + 1])


def test_a_q_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidProposal, match="q has 2 entries and p 3; pad q"):
        rejection(Proposal.chain([1], [np.array([0.5, 0.5])]), lambda _: GOOD, Noise(0), 0)
    with pytest.raises(InvalidProposal, match="token 3 was guessed; ids end at 2"):
        rejection(Proposal.chain([3]), lambda _: GOOD, Noise(0), 0)


def test_a_picked_guess_is_a_point_mass() -> None:
    picked = Proposal.chain([2]).draws[0]
    assert law_of(picked, 2, 3).tolist() == [0.0, 0.0, 1.0]


class FixedNoise:
    """Noise with one fixed uniform for each stream."""

    def __init__(self, **uniforms: float) -> None:
        self.uniforms = uniforms

    def uniform(self, stream: Stream, round_idx: int, draw_idx: int) -> float:  # noqa: ARG002
        return self.uniforms[stream.name.lower()]


@pytest.mark.parametrize("exponent", [10, 20, 40, 50, 52])
def test_a_residual_of_any_mass_is_what_is_left(exponent: int) -> None:
    """p and q differ by 2^-exponent: a refused guess is followed by the one token that p has more
    of, and never by a draw from p."""
    little = 2.0**-exponent
    probs_p, probs_q = np.array([0.5 + little, 0.5 - little, 0.0]), np.array([0.5, 0.5, 0.0])
    assert residual(probs_p, probs_q).tolist() == [1.0, 0.0, 0.0]
    for final in (0.0, 0.5, 1 - 2**-53):
        noise = FixedNoise(test=1 - 2**-53, final=final)
        verdict = rejection(Proposal.chain([1], [probs_q]), lambda _: probs_p, noise, 0)
        assert verdict == Verdict((), (0,), Origin.RECOVERED)


def test_where_p_equals_q_nothing_is_left_and_p_stands() -> None:
    probs = np.array([0.25, 0.75])
    assert residual(probs, probs).tolist() == [0.25, 0.75]


@pytest.mark.parametrize("u", [0.0, 0.3, 1 - 2**-53])
def test_a_guess_holds_iff_u_is_under_the_quotient(u: float) -> None:
    """Accepted iff u < p/q: u may be 0, and a token of probability 0 must be refused even then."""
    probs_q = np.array([0.5, 0.5])
    impossible = rejection(
        Proposal.chain([0], [probs_q]), lambda _: GOOD[:2], FixedNoise(test=u, final=0.0), 0
    )
    assert impossible.path == ()
    probs_p = np.array([0.25, 0.75])
    edge = FixedNoise(test=0.5, final=0.0)
    assert rejection(Proposal.chain([0], [probs_q]), lambda _: probs_p, edge, 0).path == ()
    under = FixedNoise(test=np.nextafter(0.5, 0), final=0.0)
    assert rejection(Proposal.chain([0], [probs_q]), lambda _: probs_p, under, 0).path == (0,)


@pytest.mark.parametrize("lenience", [1.0, 0.5])
def test_which_uniforms_are_asked_for(lenience: float) -> None:
    """Of this round only: one for each draw that is tried, by its index, and one for the end."""
    asked: list[tuple[Stream, int, int]] = []

    class Heard:
        def uniform(self, stream: Stream, round_idx: int, draw_idx: int) -> float:
            asked.append((stream, round_idx, draw_idx))
            return 0.99

    builder, probs = ProposalBuilder(), np.array([0.0, 0.2, 0.4, 0.4])
    for token in (0, 1, 1, 2):
        builder.add(ROOT, token)
    lenient(builder.build(), lambda _: probs, Heard(), 7, lenience)
    assert asked == [*((Stream.TEST, 7, idx) for idx in range(4)), (Stream.FINAL, 7, 0)]


def test_positions_of_a_tree_are_depths() -> None:
    """Noise is asked for at the first position plus a node's depth."""
    asked: list[int] = []

    class Heard:
        def gumbel(self, position: int, tokens: np.ndarray) -> np.ndarray:
            asked.append(position)
            return np.zeros(len(tokens))

    proposal = Proposal.chain([1, 1])
    coupled(proposal, lambda _: np.array([0.0, 1.0]), Heard(), 7)
    assert asked == [7, 8, 9]
