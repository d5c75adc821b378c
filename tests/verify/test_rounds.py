"""Promise 1 over several rounds, by enumeration: two and three rounds, to 1e-9.

One round cannot show that a uniform is used again in the next. Here the rounds of a text share
one source of lazy uniforms, so whatever a later round reuses is known from the earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from forerun.drafters import Budget, Drafter, NgramTables, RandomTokens
from forerun.sampling import Probs
from forerun.types import (
    ROOT,
    Acceptance,
    Proposal,
    ProposalBuilder,
    SamplingParams,
    Verdict,
)
from forerun.verify import lenient, rejection
from tests.contracts.test_drafters import View
from tests.enumeration import LazyNoise, World, law_of
from tests.verify.test_law_rejection import worst_error
from tests.worlds import TableModel

PARAMS = SamplingParams(acceptance=Acceptance.REJECTION)
PROMPT = (0, 1, 0, 0, 1)

ProbsAt = Callable[[int], Probs]
Accept = Callable[[Proposal, ProbsAt, LazyNoise, int], Verdict]
Texts = tuple[tuple[int, ...], ...]  # what each round emitted

DRAFTERS: dict[str, Callable[[int], Drafter]] = {
    "random": RandomTokens,
    "unigram": lambda vocab_size: NgramTables(vocab_size, (1,)),
}
# (vocabulary, rounds, what is guessed in each)
SHAPES: dict[str, tuple[int, int, Budget]] = {
    "two rounds": (3, 2, Budget(1)),
    "two rounds of chains": (2, 2, Budget(2)),
    "two rounds of siblings": (3, 2, Budget(1, num_branches=2)),
    "three rounds": (3, 3, Budget(1)),
    "three rounds of siblings": (2, 3, Budget(1, num_branches=2)),
}


def lenient_half(
    proposal: Proposal, probs_at: ProbsAt, noise: LazyNoise, round_idx: int
) -> Verdict:
    return lenient(proposal, probs_at, noise, round_idx, 0.5)


def one_round(
    accept: Accept, drafter: Drafter, target: TableModel, view: View, budget: Budget
) -> Verdict:
    drafter.begin(view)
    proposal = drafter.propose([view], [budget])[0]
    drafter.end(view)

    def probs_at(node: int) -> Probs:
        return target.probs((*view.output, *proposal.path_tokens(node)))

    return accept(proposal, probs_at, view.noise, view.round_idx)  # type: ignore[arg-type]


def rounds(
    accept: Accept,
    drafter: Drafter,
    target: TableModel,
    budget: Budget,
    num_rounds: int,
    world: World,
    output: tuple[int, ...] = (),
) -> Texts:
    """What each of some rounds emits after `output`, with one source of noise for all."""
    view = View(PROMPT, params=PARAMS, output=output, noise=LazyNoise(world))  # type: ignore[arg-type]
    emitted: Texts = ()
    for _ in range(num_rounds):
        verdict = one_round(accept, drafter, target, view, budget)
        emitted = (*emitted, verdict.tokens)
        view = view.after(verdict)
    return emitted


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_texts_of_several_rounds_have_the_targets_law(shape: str, name: str) -> None:
    vocab_size, num_rounds, budget = SHAPES[shape]
    target = TableModel(vocab_size, seed=6, zeros=0.0)
    drafter = DRAFTERS[name](vocab_size)
    run = partial(rounds, rejection, drafter, target, budget, num_rounds)
    law: dict[tuple[int, ...], float] = {}
    for emitted, prob in law_of(run).items():
        text = sum(emitted, ())
        law[text] = law.get(text, 0.0) + prob
    assert worst_error(law, target) < 1e-9


@pytest.mark.parametrize("accept", [rejection, lenient_half], ids=["rejection", "lenient"])
def test_a_round_knows_of_the_rounds_before_it_only_what_they_emitted(accept: Accept) -> None:
    """The law of two rounds is the law of one after another, each with noise of its own. It holds
    of `lenient` too, which has no other exact law."""
    target, drafter = TableModel(3, seed=6, zeros=0.0), RandomTokens(3)
    run = partial(rounds, accept, drafter, target, Budget(1))
    expected: dict[Texts, float] = {}
    for (first,), prob in law_of(partial(run, 1)).items():
        for (second,), then in law_of(partial(run, 1, output=first)).items():
            expected[first, second] = prob * then
    assert law_of(partial(run, 2)) == pytest.approx(expected, abs=1e-12)


def test_a_token_refused_once_is_never_accepted_again() -> None:
    """Why copies of one sibling may share a uniform: a refusal means p(x) < q(x), and the residual
    has no x, whatever the second copy's own uniform is."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        p, q1, q2 = rng.dirichlet(np.ones(3), size=3)

        def run(world: World, p: Probs = p, q1: Probs = q1, q2: Probs = q2) -> tuple[int, ...]:
            return rejection(_twice(q1, q2), lambda _: p, LazyNoise(world), 0).path

        accepted = law_of(run).get((0,), 0.0)
        assert accepted == pytest.approx(min(1.0, p[0] / q1[0]), abs=1e-12)


def _twice(q1: Probs, q2: Probs) -> Proposal:
    """Token 0, drawn from two laws."""
    builder = ProposalBuilder()
    builder.add(ROOT, 0, q1)
    builder.add(ROOT, 0, q2)
    return builder.build()
