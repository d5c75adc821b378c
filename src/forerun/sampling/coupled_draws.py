"""Tokens after a proposal's nodes under coupled acceptance, as a value that kernels can draw by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from forerun.sampling.noise import Noise
from forerun.sampling.transforms import Context
from forerun.types import ROOT, Proposal, SamplingParams


@dataclass(frozen=True)
class CoupledDraws:
    """How the tokens after some nodes are drawn, by default after the root and every node.

    Under coupled acceptance none of them depends on what was guessed, so a kernel set may draw
    them all where the logits are. A draft model's guesses are such draws from its own logits.
    """

    params: SamplingParams
    noise: Noise
    position: int  # of the token after the last committed one
    context: Context  # the committed tokens
    eos_token_ids: Sequence[int]
    proposal: Proposal
    some_nodes: Sequence[int] | None = None  # None: the root and all nodes

    @classmethod
    def greedy(cls, num: int) -> CoupledDraws:
        """The argmax of `num` rows."""
        params, proposal = SamplingParams(temperature=0), Proposal.chain([0] * (num - 1))
        return cls(params, Noise(0), 0, Context(), (), proposal)

    @property
    def nodes(self) -> Sequence[int]:
        return range(ROOT, len(self.proposal)) if self.some_nodes is None else self.some_nodes

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def positions(self) -> list[int]:
        depths = (*self.proposal.tree.depths, 0)  # the last is the root's, whose number is -1
        return [self.position + depths[node] for node in self.nodes]

    @cached_property
    def changes_logits(self) -> bool:
        """Whether bias, masks or penalties do, for any of them."""
        if self.context.changes_logits(self.params):
            return True
        if self.context.grammar is None:
            return False
        # A grammar that begins on the way to a node goes on behind it.
        last = self.nodes[-1:] if self.proposal.tree.is_chain else self.nodes
        paths = (self.proposal.path_tokens(node) for node in last)
        return any(self.context.extended(path).changes_logits(self.params) for path in paths)
