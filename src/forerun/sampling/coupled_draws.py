"""The target's own tokens after a proposal's nodes, as something that can be drawn at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.sampling.noise import Noise
from forerun.sampling.transforms import Context
from forerun.types import Proposal, SamplingParams


@dataclass(frozen=True)
class CoupledDraws:
    """How the token after the last committed one, and after each node, is drawn.

    Under coupled acceptance none of them depends on what was guessed, so a kernel set may draw
    them all where the logits are.
    """

    params: SamplingParams
    noise: Noise
    position: int  # of the token after the last committed one
    context: Context  # the committed tokens
    eos_token_ids: Sequence[int]
    proposal: Proposal

    def __len__(self) -> int:
        return 1 + len(self.proposal)

    @property
    def positions(self) -> list[int]:
        return [self.position, *(self.position + depth for depth in self.proposal.tree.depths)]

    @property
    def changes_logits(self) -> bool:
        """Whether bias, masks or penalties do, for any of them."""
        return self.params.changes_logits or len(self.context.output) < self.params.min_tokens
