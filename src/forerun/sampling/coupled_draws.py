"""Tokens after a proposal's nodes under coupled acceptance, as a value that kernels can draw by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forerun.errors import InvalidGrammar
from forerun.sampling.noise import Noise
from forerun.sampling.transforms import Context
from forerun.types import ROOT, Grammar, Proposal, SamplingParams


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
        # It does not bind here; if it does behind a node of a chain, then behind the last one.
        is_last_enough = self.proposal.tree.is_chain and not grammar.may_loosen(output)
        nodes = self.nodes[-1:] if is_last_enough else self.nodes
        try:
            return any(grammar.binds(output, self.proposal.path_tokens(node)) for node in nodes)
        except InvalidGrammar:  # too much for it behind guesses that may never be accepted
            return True

    @property
    def masks_at_most(self) -> bool:
        """Whether masks are all that changes logits, and nothing but noise comes behind them."""
        params, num_written = self.params, len(self.context.output)
        if self.changes_logits and (params.moves_logits or num_written < params.min_tokens):
            return False
        return params.temperature == 0 or not params.truncates

    def allowed(self) -> Iterator[bytes | None]:
        """For each node, a bit for each token that may follow it, the lowest first; None: all may,
        or nobody asks, since a grammar's text is over or was left there. None of them is set where
        it is too much for the grammar: `sampling` says so, if anybody asks."""
        fixed, grammar, output = self.params.allowed_bits, self.context.grammar, self.context.output
        found = dict[int, bytes | None]()  # where the grammar binds; None: nobody comes there
        for node in self.nodes:
            path = self.proposal.path_tokens(node)
            try:
                if grammar is None or not grammar.binds(output, path):
                    yield fixed
                    continue
                is_out = self._is_left(node, grammar, found) or grammar.is_over(output, path)
                bits = None if is_out else grammar.allowed_bits(output, path)
            except InvalidGrammar:
                bits = b""
            found[node] = bits
            yield bits if not bits or fixed is None else _both(bits, fixed)

    def _is_left(self, node: int, grammar: Grammar, found: Mapping[int, bytes | None]) -> bool:
        """Whether a guess on the way to a node does not fit."""
        if node == ROOT:
            return False
        parent, token = self.proposal.tree.parents[node], self.proposal.tokens[node]
        if parent in found:
            bits = found[parent] or b""
            return token // 8 >= len(bits) or not bits[token // 8] >> token % 8 & 1
        if self.some_nodes is None:  # it may follow what the grammar says nothing of
            return False
        path = self.proposal.path_tokens(node)
        return grammar.num_fitting(self.context.output, path) < len(path)


def _both(left: bytes, right: bytes) -> bytes:
    num = min(len(left), len(right))
    return (np.frombuffer(left, np.uint8, num) & np.frombuffer(right, np.uint8, num)).tobytes()
