"""Prompt lookup: copy what followed the text's last n-gram where it occurred before.

The longest n-gram that occurs earlier is used, at its latest occurrence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.errors import InvalidOption
from forerun.types import ROOT, Proposal, ProposalBuilder

_MAX_ENDS: Final = 32  # earlier occurrences considered for each length, the latest first


class PromptLookup(OneByOne["_IndexedText"]):
    """Copies from the request's own text, without weights or probabilities."""

    picks = True

    def __init__(self, min_ngram: int = 2, max_ngram: int = 5) -> None:
        super().__init__()
        if not 1 <= min_ngram <= max_ngram:
            raise InvalidOption(
                f"prompt_lookup_min={min_ngram} and prompt_lookup_max={max_ngram} are not allowed; "
                f"give 1 ≤ min ≤ max."
            )
        self._lengths = range(max_ngram, min_ngram - 1, -1)

    def _remember(self, request: RequestView) -> _IndexedText:  # noqa: ARG002
        return _IndexedText(self._lengths)

    def _guess(self, request: RequestView, text: _IndexedText, budget: Budget) -> Proposal:
        text.extend(request.tokens)
        builder = ProposalBuilder()
        branches: set[int] = set()
        for continuation in text.continuations(budget.depth):
            if len(branches) == budget.num_branches:
                break
            if continuation[0] in branches:
                continue
            branches.add(continuation[0])
            node = ROOT
            for token in continuation:
                node = builder.add(node, token)
        return builder.build()


class _IndexedText:
    """A growing text, and the ends of all occurrences of each of its n-grams, by length."""

    def __init__(self, lengths: range) -> None:
        self._tokens: list[int] = []
        self._ends: dict[int, dict[tuple[int, ...], list[int]]] = {n: {} for n in lengths}

    def extend(self, tokens: Sequence[int]) -> None:
        """Index the new tokens. The n-gram at the end is indexed once a token follows it."""
        for token in tokens[len(self._tokens) :]:
            end = len(self._tokens)
            for n, ends in self._ends.items():
                if n <= end:
                    ends.setdefault(tuple(self._tokens[end - n :]), []).append(end)
            self._tokens.append(token)

    def continuations(self, length: int) -> Iterator[list[int]]:
        """Yield what followed the text's last n-gram before: longest n first, then latest.

        A continuation that runs into the end of the text is repeated from its beginning.
        """
        if length == 0:
            return
        for n, ends in self._ends.items():
            for end in ends.get(tuple(self._tokens[-n:]), [])[: -_MAX_ENDS - 1 : -1]:
                tail = self._tokens[end : end + length]
                yield [tail[i % len(tail)] for i in range(length)]
