"""How the tokens after a proposal's nodes are drawn under coupled acceptance, as a value."""

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
    """How the target's tokens after some nodes are drawn; by default, after the root and all nodes.

    Under coupled acceptance none of these draws depends on the guesses, so a kernel set may make
    them on the device, where the logits are. A draft model draws its guesses in the same way, from
    its own logits.
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
        """Draws that are the argmax of each of `num` rows."""
        params, proposal = SamplingParams(temperature=0), Proposal.chain([0] * (num - 1))
        return cls(params, Noise(0), 0, Context(), (), proposal)

    @property
    def nodes(self) -> Sequence[int]:
        return range(ROOT, len(self.proposal)) if self.some_nodes is None else self.some_nodes

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def positions(self) -> list[int]:
        depths = (*self.proposal.tree.depths, 0)  # the last is the root's, as ROOT is -1
        return [self.position + depths[node] for node in self.nodes]

    @cached_property
    def changes_logits(self) -> bool:
        """Whether bias, masks or penalties change the logits after any of these nodes."""
        if self.context.changes_logits(self.params):
            return True
        grammar, output = self.context.grammar, self.context.output
        if grammar is None:
            return False
        # It does not bind yet. If it does after any node of a chain, then after the last, too.
        is_last_enough = self.proposal.tree.is_chain and not grammar.may_loosen(output)
        nodes = self.nodes[-1:] if is_last_enough else self.nodes
        try:
            return any(grammar.binds(output, self.proposal.path_tokens(node)) for node in nodes)
        except InvalidGrammar:  # too much for the grammar, after guesses that may be rejected
            return True

    @property
    def masks_at_most(self) -> bool:
        """Whether logits are changed by masks at most, and not truncated afterwards."""
        params, num_written = self.params, len(self.context.output)
        if self.changes_logits and (params.moves_logits or num_written < params.min_tokens):
            return False
        return params.temperature == 0 or not params.truncates

    def allowed(self) -> Iterator[bytes | None]:
        """Yield, for each node, a bit for each token that may follow it, the lowest first.

        None means that all may follow, or that it does not matter: the grammar's text is over, or
        the path to the node does not fit the grammar. No bit is set if the grammar fails; the error
        is raised if the logits after that node are served.
        """
        fixed, grammar, output = self.params.allowed_bits, self.context.grammar, self.context.output
        found = dict[int, bytes | None]()  # by node, where the grammar binds; None: unreachable
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
        """Whether a guess on the path to `node` does not fit the grammar."""
        if node == ROOT:
            return False
        parent, token = self.proposal.tree.parents[node], self.proposal.tokens[node]
        if parent in found:
            bits = found[parent] or b""
            return token // 8 >= len(bits) or not bits[token // 8] >> token % 8 & 1
        if self.some_nodes is None:  # the grammar does not bind after the parent: any guess fits
            return False
        path = self.proposal.path_tokens(node)
        return grammar.num_fitting(self.context.output, path) < len(path)


def _both(left: bytes, right: bytes) -> bytes:
    num = min(len(left), len(right))
    return (np.frombuffer(left, np.uint8, num) & np.frombuffer(right, np.uint8, num)).tobytes()
