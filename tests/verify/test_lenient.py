"""Lenience is lossy, and its loss is bounded: no token above p/l, by enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from forerun.errors import InvalidOption
from forerun.sampling import Noise, UniformNoise
from forerun.types import ROOT, Draw, Proposal, Tree
from forerun.verify import bound, greedy, lenient, lenient_greedy, rejection
from tests.verify.test_law_rejection import Verify, emitted_law, worst_error
from tests.worlds import Drafter, TableModel, drawn_tree, merged_chains, picked


def verify_lenient(lenience: float) -> Verify:
    def verify(proposal: Proposal, target: TableModel, noise: UniformNoise) -> tuple[int, ...]:
        def probs_at(node: int) -> np.ndarray:
            return target.probs(proposal.path_tokens(node))

        return lenient(proposal, probs_at, noise, 0, lenience).tokens

    return verify


DRAFTERS: dict[str, Drafter] = {
    "chain": drawn_tree([TableModel(3, 91)], [1, 1]),
    "siblings": drawn_tree([TableModel(3, 92)], [3]),
    "without replacement": drawn_tree([TableModel(3, 93)], [2], replace=False),
    "two laws": drawn_tree([TableModel(3, 94), TableModel(3, 95)], [2, 1]),
    "merged chains": merged_chains([TableModel(3, 96), TableModel(3, 97)], 2),
}


@pytest.mark.parametrize("lenience", [0.9, 0.5, 0.1])
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("seed", range(3))
def test_no_token_above_p_over_l(name: str, lenience: float, seed: int) -> None:
    """Per token, given what was emitted before it: P(x | head) ≤ p(x | head) / l."""
    target = TableModel(3, seed)
    law = emitted_law(DRAFTERS[name], target, verify_lenient(lenience))
    for length in range(1, max(map(len, law)) + 1):
        for sequence in itertools.product(range(3), repeat=length):
            reached = sum(prob for head, prob in law.items() if head[:length] == sequence)
            # Rounds that went past the head; those that ended at it continue by plain p.
            went_on = sum(
                prob for head, prob in law.items()
                if len(head) >= length and head[: length - 1] == sequence[:-1]
            )  # fmt: skip
            p = float(target.probs(sequence[:-1])[sequence[-1]])
            assert reached <= went_on * p * bound(lenience) + 1e-9


def test_lenience_really_accepts_more() -> None:
    target = TableModel(3, 1)
    drafter = DRAFTERS["chain"]
    strict = emitted_law(drafter, target, verify_lenient(1.0))
    loose = emitted_law(drafter, target, verify_lenient(0.3))
    mean_len = [sum(prob * len(head) for head, prob in law.items()) for law in (strict, loose)]
    assert mean_len[1] > mean_len[0] + 0.05
    assert worst_error(strict, target) < 1e-9, "l = 1 is exact"
    assert worst_error(loose, target) > 1e-3, "and below 1 it is not: lossy is the right name"


def test_acceptance_rate_is_a5s_closed_form() -> None:
    """α = Σ min(p/l, q)."""
    target, draft = TableModel(4, 7, zeros=0.0), TableModel(4, 8, zeros=0.0)
    p, q = target.probs(()), draft.probs(())
    for lenience in (1.0, 0.5, 0.2):
        law = emitted_law(drawn_tree([draft], [1]), target, verify_lenient(lenience))
        accepted = sum(prob for head, prob in law.items() if len(head) == 2)
        assert accepted == pytest.approx(np.minimum(p / lenience, q).sum(), abs=1e-12)


def test_a_q_in_float32_is_worked_with_in_float64() -> None:
    """l·q rounded to float32 would move the test by 1e-8."""
    target, draft = TableModel(4, 7, zeros=0.0), TableModel(4, 8, zeros=0.0)
    p, q = target.probs(()), draft.probs(()).astype(np.float32)
    for lenience in (1.0, 0.7, 0.3):
        for token in range(4):
            law = emitted_law(
                picked(Proposal.chain([token], [q])), target, verify_lenient(lenience)
            )
            accepted = sum(prob for head, prob in law.items() if len(head) == 2)
            exact = min(1.0, p[token] / (lenience * float(q[token])))
            assert accepted == pytest.approx(exact, abs=1e-12)


def two_siblings(first: int, second: int) -> Proposal:
    return Proposal(Tree((ROOT, ROOT)), (first, second), (Draw(0), Draw(1)))


@pytest.mark.parametrize(
    ("lenience", "emitted"),
    [(1.0, (2,)), (0.81, (2,)), (0.8, (1, 2)), (0.1, (1, 2))],
)
def test_temperature_0_accepts_at_least_l_times_the_best(
    lenience: float, emitted: tuple[int, ...]
) -> None:
    """A.5 prints ≤; it must be ≥, or only bad guesses would pass."""
    probs = np.array([0.1, 0.4, 0.5])
    assert lenient_greedy(Proposal.chain([1]), lambda _: probs, lenience).tokens == emitted


def test_temperature_0_prefers_the_argmax_among_guesses_that_pass() -> None:
    probs = np.array([0.1, 0.4, 0.5])
    assert lenient_greedy(two_siblings(1, 2), lambda _: probs, 0.1).tokens == (2, 2)


def test_temperature_0_strict_is_greedy() -> None:
    probs = np.array([0.1, 0.4, 0.5])
    for proposal in (Proposal.chain([2, 2]), Proposal.chain([1]), two_siblings(0, 2)):
        strict = lenient_greedy(proposal, lambda _: probs, 1.0)
        assert strict == greedy(proposal, lambda _: np.log(probs))


@pytest.mark.parametrize("lenience", [0.0, -1.0, 1.1, float("nan")])
def test_bad_lenience(lenience: float) -> None:
    with pytest.raises(InvalidOption, match="lenience"):
        lenient(Proposal.empty(), lambda _: np.array([1.0]), Noise(0), 0, lenience)
    with pytest.raises(InvalidOption, match="lenience"):
        lenient_greedy(Proposal.empty(), lambda _: np.array([1.0]), lenience)
    with pytest.raises(InvalidOption, match="lenience"):
        bound(lenience)


def test_rejection_is_lenient_with_l_1() -> None:
    probs = np.array([0.1, 0.4, 0.5])
    proposal = Proposal.chain([1, 2, 0])
    for seed in range(50):
        args = (proposal, lambda _: probs, Noise(seed), 3)
        assert rejection(*args) == lenient(*args, 1.0)
