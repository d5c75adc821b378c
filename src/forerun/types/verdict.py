"""What one round emits, and how each token came about."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from forerun.types.proposal import Proposal


class Origin(StrEnum):
    """How an emitted token came about."""

    ACCEPTED = "accepted"  # a guess that was accepted
    RECOVERED = "recovered"  # the target's own token at the first miss
    BONUS = "bonus"  # the extra token after all guesses were accepted
    PLAIN = "plain"  # nothing was guessed


class Verdict(NamedTuple):
    """What one round emits: the tokens of the accepted path, then a final one.

    `final` is None if the output ended inside the accepted path, so that no final token was
    emitted.
    """

    path: tuple[int, ...]  # accepted nodes, from the root down
    tokens: tuple[int, ...]  # emitted: the path's tokens, then the final one
    final: Origin | None

    @classmethod
    def reached(cls, proposal: Proposal, node: int, final_token: int) -> Verdict:
        """The verdict that accepts all guesses down to `node` and then emits `final_token`."""
        if not proposal.tokens:
            return cls((), (int(final_token),), Origin.PLAIN)
        tree = proposal.tree
        final = Origin.RECOVERED if tree.children(node) else Origin.BONUS
        return cls(tree.path_to(node), (*proposal.path_tokens(node), int(final_token)), final)

    def first(self, num_tokens: int) -> Verdict:
        """The same verdict, ended after `num_tokens` emitted tokens."""
        if num_tokens >= len(self.tokens):
            return self
        return Verdict(self.path[:num_tokens], self.tokens[:num_tokens], None)

    @property
    def num_accepted(self) -> int:
        return len(self.path)

    @property
    def origins(self) -> tuple[Origin, ...]:
        accepted = (Origin.ACCEPTED,) * len(self.path)
        return accepted if self.final is None else (*accepted, self.final)
