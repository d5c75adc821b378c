"""Tokens after a proposal's nodes under coupled acceptance, as a value that kernels can draw by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forerun.errors import InvalidGrammar
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
        grammar, output = self.context.grammar, self.context.output
        if grammar is None:
            return False
        # It does not bind here, so if it does behind a node, then behind all that follow.
        last = self.nodes[-1:] if self.proposal.tree.is_chain else self.nodes
        try:
            return any(grammar.binds(output, self.proposal.path_tokens(node)) for node in last)
        except InvalidGrammar:  # too much for it behind guesses that may never be accepted
            return True

    @property
    def masks_at_most(self) -> bool:
        """Whether masks are all that changes logits, and nothing but noise comes behind them."""
        params, num_written = self.params, len(self.context.output)
        if self.changes_logits and (params.moves_logits or num_written < params.min_tokens):
            return False
        return params.temperature == 0 or not params.truncates

    def allowed_after(self, node: int) -> bytes | None:
        """A bit for each token that may follow a node, the lowest first; None: all may, or nobody
        asks, since a grammar's text is over or was left there. None of them is set where it is too
        much for the grammar: `sampling` says so, if anybody asks."""
        fixed, grammar = self.params.allowed_bits, self.context.grammar
        if grammar is None:
            return fixed
        output, path = self.context.output, self.proposal.path_tokens(node)
        written = (*output, *path)
        try:
            if not grammar.binds(output, path):
                return fixed
            is_left = bool(path) and grammar.num_fitting(output, path) < len(path)
            if is_left or grammar.is_over(written):
                return None
            bits = grammar.allowed_bits(written)
        except InvalidGrammar:
            return b""
        return bits if fixed is None else _both(bits, fixed)


def _both(left: bytes, right: bytes) -> bytes:
    num = min(len(left), len(right))
    return (np.frombuffer(left, np.uint8, num) & np.frombuffer(right, np.uint8, num)).tobytes()
