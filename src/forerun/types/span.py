"""Spans: everything that the target runs is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.errors import InvalidProposal
from forerun.types.proposal import Proposal
from forerun.types.tree import ROOT, Tree


@dataclass(frozen=True)
class Span:
    """A run of tokens for one request, all of which the target scores in one pass.

    A prompt chunk and a plain decode step are chains; a verification is the last emitted token
    followed by a proposal's nodes. A token attends to all committed tokens, and to its ancestors in
    the span, itself included.
    """

    start: int  # committed tokens before the span: the absolute position of its first token
    tokens: tuple[int, ...]
    tree: Tree  # over the span's own tokens
    wanted: tuple[int, ...]  # indices into `tokens` of those whose logits are needed

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.tree.parents):
            raise InvalidProposal(
                f"a span holds at least one token and one tree node each; got "
                f"{len(self.tokens)} tokens and {len(self.tree)} nodes."
            )
        if self.wanted and not 0 <= min(self.wanted) <= max(self.wanted) < len(self.tokens):
            raise InvalidProposal(f"wanted logits {self.wanted} lie outside the span.")

    @classmethod
    def prompt_chunk(cls, start: int, tokens: Sequence[int], *, is_last: bool) -> Span:
        wanted = (len(tokens) - 1,) if is_last else ()
        return cls(start, tuple(tokens), Tree.chain(len(tokens)), wanted)

    @classmethod
    def all_wanted(cls, start: int, tokens: Sequence[int]) -> Span:
        """A chain whose logits are all wanted."""
        return cls(start, tuple(tokens), Tree.chain(len(tokens)), tuple(range(len(tokens))))

    @classmethod
    def verification(cls, start: int, last_token: int, proposal: Proposal) -> Span:
        """The last emitted token, then the guesses; without guesses, a plain decode step."""
        tokens = (last_token, *proposal.tokens)
        if proposal.tree.is_chain:
            return cls.all_wanted(start, tokens)
        parents = (ROOT, *(parent + 1 for parent in proposal.tree.parents))
        return cls(start, tokens, Tree(parents), tuple(range(len(tokens))))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def positions(self) -> Sequence[int]:
        """The absolute position of each token; a range if the span is a chain."""
        if self.tree.is_chain:
            return range(self.start, self.start + len(self.tokens))
        before = self.start - 1
        return [before + depth for depth in self.tree.depths]
