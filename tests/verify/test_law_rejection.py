"""Promise 1, by enumeration: what `rejection` emits has the target's law, to 1e-9.

Every outcome of the drafter's draws and the verifier's decisions is run through the shipped
functions. A round emits between 1 and D+1 tokens; the first D+1 tokens of the text, continued by
plain sampling where a round ends early, must have exactly the target's joint law.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from forerun.sampling import UniformNoise
from forerun.types import ROOT, Draw, Proposal, Tree
from forerun.verify import rejection
from tests.enumeration import Staged
from tests.worlds import (
    Drafter,
    TableModel,
    draft_uniforms,
    drawn_tree,
    merged_chains,
    picked,
)

Verify = Callable[[Proposal, TableModel, UniformNoise], tuple[int, ...]]


def verify_rejection(
    proposal: Proposal, target: TableModel, noise: UniformNoise
) -> tuple[int, ...]:
    def probs_at(node: int) -> np.ndarray:
        return target.probs(proposal.path_tokens(node))

    return rejection(proposal, probs_at, noise, round_idx=0).tokens


def emitted_law(
    drafter: Drafter, target: TableModel, verify: Verify = verify_rejection
) -> dict[tuple[int, ...], float]:
    drafts = Staged(lambda noise: drafter(draft_uniforms(noise)))
    return drafts.law_of(lambda proposal, noise: verify(proposal, target, noise))


def worst_error(law: dict[tuple[int, ...], float], target: TableModel) -> float:
    """Largest error over all sequences as long as the longest emitted one."""
    length = max(map(len, law))
    worst = 0.0
    for sequence in itertools.product(range(target.vocab_size), repeat=length):
        got = sum(
            prob * target.sequence_prob(sequence[len(head) :], after=head)
            for head, prob in law.items()
            if sequence[: len(head)] == head
        )
        worst = max(worst, abs(got - target.sequence_prob(sequence)))
    return worst


def models(vocab_size: int, seed: int, count: int) -> list[TableModel]:
    return [TableModel(vocab_size, 1000 * seed + k + 1) for k in range(count)]


def fixed_tree() -> Proposal:
    tree = Tree((ROOT, ROOT, 0, 0, 1, 2))
    tokens = (0, 2, 1, 2, 0, 0)
    return Proposal(tree, tokens, tuple(Draw(node) for node in range(len(tree))))


def drawn(vocab_size: int, widths: list[int], count: int = 1, *, replace: bool = True) -> Shape:
    def make(seed: int) -> Drafter:
        return drawn_tree(models(vocab_size, seed, count), widths, replace=replace)

    return vocab_size, make


Shape = tuple[int, Callable[[int], Drafter]]

SHAPES: dict[str, Shape] = {
    "nothing guessed": (3, lambda _: picked(Proposal.empty())),
    "chain of 1": drawn(4, [1]),
    "chain of 3": drawn(4, [1, 1, 1]),
    "2 siblings": drawn(4, [2]),
    "3 siblings": drawn(4, [3]),
    "duplicates certain": drawn(2, [3]),
    "2 siblings without replacement": drawn(4, [2], replace=False),
    "all tokens without replacement": drawn(3, [3], replace=False),
    "two levels": drawn(4, [2, 2]),
    "two levels without replacement": drawn(3, [2, 2], replace=False),
    "wide then deep": drawn(3, [2, 1, 1]),
    "deep then wide": drawn(3, [1, 1, 2]),
    "three levels": drawn(2, [2, 2, 2]),
    "q1, q2": drawn(4, [2], 2),
    "q1, q2, q3": drawn(3, [3], 3),
    "q1, q2 on two levels": drawn(3, [2, 1], 2),
    "merged chains": (3, lambda s: merged_chains(models(3, s, 2), 2)),
    "merged chains of one model": (2, lambda s: merged_chains(models(2, s, 1) * 3, 2)),
    "picked chain": (3, lambda _: picked(Proposal.chain([0, 1, 2]))),
    "picked tree": (3, lambda _: picked(fixed_tree())),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_emitted_sequences_have_the_targets_law(shape: str, seed: int) -> None:
    vocab_size, make_drafter = SHAPES[shape]
    target = TableModel(vocab_size, seed)
    assert worst_error(emitted_law(make_drafter(seed), target), target) < 1e-9


@pytest.mark.parametrize("width", [1, 2])
def test_drafter_equal_to_target_is_always_accepted(width: int) -> None:
    """p = q leaves no residual: the fall-back to p must not be needed to get the law right."""
    target = TableModel(3, seed=5)
    law = emitted_law(drawn_tree([target], [width, 1]), target)
    assert worst_error(law, target) < 1e-9
    assert {len(tokens) for tokens in law} == {3}, "a guess from p itself was refused"


def test_disjoint_supports_are_never_accepted() -> None:
    class Half(TableModel):
        def probs(self, prefix: object) -> np.ndarray:  # noqa: ARG002
            row = np.zeros(4)
            row[2 * self.seed : 2 * self.seed + 2] = 0.3, 0.7
            return row

    law = emitted_law(drawn_tree([Half(4, 1)], [2]), Half(4, 0))
    assert law == pytest.approx({(0,): 0.3, (1,): 0.7}, abs=1e-12)
