"""Acceptance by identity: a guess is accepted iff it *is* the token the target chose.

Coupled and greedy acceptance are this one walk; they differ in how the target chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forerun.types import ROOT, Proposal, Verdict

Drawn = Callable[[int], int | None]  # the token after a node, where someone has drawn it already


def none_drawn(_node: int) -> None:
    return None


def match(
    proposal: Proposal, target_token: Callable[[int], int], drawn: Drawn = none_drawn
) -> Verdict:
    """Walk down while the target's own token is among the guesses.

    `target_token(node)` is the token the target puts after `node`; it is asked only along the
    accepted path, and only where the token is not drawn yet. What comes out is the target's own
    sequence, whatever was guessed.
    """
    node = ROOT
    while True:
        token = drawn(node)
        if token is None:
            token = target_token(node)
        child = proposal.child_with_token(node, token)
        if child is None:
            return Verdict.reached(proposal, node, token)
        node = child


def match_drawn(proposal: Proposal, tokens: Sequence[int]) -> Verdict:
    """The same, where the token after the root and those after all nodes are drawn already."""
    node = ROOT
    if proposal.tree.is_chain:
        num_accepted = 0
        for guess, token in zip(proposal.tokens, tokens, strict=False):  # one is behind all guesses
            if guess != token:
                break
            num_accepted += 1
        return Verdict.reached(proposal, num_accepted - 1, tokens[num_accepted])
    while (child := proposal.child_with_token(node, tokens[node + 1])) is not None:
        node = child
    return Verdict.reached(proposal, node, tokens[node + 1])
