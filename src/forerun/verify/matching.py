"""Acceptance by identity: a guess is accepted iff it *is* the token that the target chooses.

Coupled and greedy acceptance share this walk and differ only in how the target chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forerun.types import ROOT, Proposal, Verdict

Drawn = Callable[[int], int | None]  # the token after a node, if it was drawn with the pass


def none_drawn(_node: int) -> None:
    return None


def match(
    proposal: Proposal, target_token: Callable[[int], int], drawn: Drawn = none_drawn
) -> Verdict:
    """Walk down the tree while the target's own token is among the guesses.

    `target_token(node)` returns the token that the target puts after `node`. It is called only
    along the accepted path, and only where `drawn` has no token. The emitted tokens are the
    target's own, whatever was guessed.
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
    """As `match`, given the target's `tokens` [1 + N] after the root and after every node."""
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
