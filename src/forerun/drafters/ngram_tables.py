"""N-gram tables: counts of what followed each short context, in this request's own text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.drafters.growing import grow
from forerun.drafters.law import DraftLaw
from forerun.errors import InvalidOption
from forerun.types import Proposal

Gram = tuple[int, ...]


class NgramTables(OneByOne["_Counts"]):
    """Guesses by the counts after the longest known context; the normalised counts are q.

    A table of order n has contexts of n − 1 tokens. Orders (1,) and (2,) are the paper's unigram
    and bigram. Only the last `window` tokens of a request are counted, which bounds the memory.
    """

    picks = False

    def __init__(
        self, vocab_size: int, orders: Sequence[int] = (2, 3, 4), window: int = 1 << 17
    ) -> None:
        super().__init__()
        if not orders or min(orders) < 1:
            raise InvalidOption(f"ngram orders {tuple(orders)} are not allowed; give orders ≥ 1.")
        if window < max(orders):
            raise InvalidOption(
                f"ngram window {window} is below the order {max(orders)}; raise it."
            )
        self._vocab_size = vocab_size
        self._orders = tuple(sorted(set(orders), reverse=True))
        self._window = window

    def _remember(self, request: RequestView) -> _Counts:  # noqa: ARG002
        return _Counts(self._orders, self._window)

    def _guess(self, request: RequestView, counts: _Counts, budget: Budget) -> Proposal:
        counts.extend(request.tokens)

        def law_after(path: Gram) -> DraftLaw | None:
            followers = counts.after(path)
            if followers is None:
                return None
            tokens = np.array(sorted(followers), dtype=np.int64)
            weights = np.array([followers[int(token)] for token in tokens], dtype=np.float64)
            return DraftLaw(tokens, np.log(weights), self._vocab_size)

        return grow(request, budget, law_after)


class _Counts:
    """How often each token followed each context, over the last `window` tokens."""

    def __init__(self, orders: tuple[int, ...], window: int) -> None:
        self._window = window
        self._num_seen = 0
        self._recent: list[int] = []  # ends with the window; cut when about twice as long
        self._first = 0  # where the window starts in `_recent`
        self._after: dict[int, dict[Gram, Counter[int]]] = {n: {} for n in orders}

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens[self._num_seen :]:
            self._recent.append(token)
            self._count_last(+1)
            if len(self._recent) - self._first > self._window:
                self._forget_first()
        self._num_seen = len(tokens)

    def after(self, path: Gram) -> Counter[int] | None:
        """Return the counts after the longest known context that ends the text and `path`."""
        for order, table in self._after.items():
            context = self._context(order - 1, path)
            if context is not None and context in table:
                return table[context]
        return None

    def _context(self, length: int, path: Gram) -> Gram | None:
        tail = self._recent[max(self._first, len(self._recent) - length) :]
        joined = (*tail, *path)
        return joined[len(joined) - length :] if len(joined) >= length else None

    def _count_last(self, change: int) -> None:
        end = len(self._recent) - 1
        for order in self._after:
            if end - self._first >= order - 1:
                self._change(order, end, change)

    def _forget_first(self) -> None:
        """Uncount every n-gram that starts with the oldest token."""
        for order in self._after:
            self._change(order, self._first + order - 1, -1)
        self._first += 1
        if self._first > self._window:
            del self._recent[: self._first]
            self._first = 0

    def _change(self, order: int, end: int, change: int) -> None:
        """Add `change` to the count of the n-gram whose last token is at `end`."""
        table = self._after[order]
        context = tuple(self._recent[end - order + 1 : end])
        followers = table.setdefault(context, Counter())
        followers[self._recent[end]] += change
        if followers[self._recent[end]] == 0:
            del followers[self._recent[end]]
            if not followers:
                del table[context]
