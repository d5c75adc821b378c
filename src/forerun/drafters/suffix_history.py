"""Finished outputs of earlier requests, kept apart by salt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from forerun.drafters.suffix_automaton import SuffixAutomaton

END: Final = -2  # stands after every output; no text holds it, so no match crosses it


class OutputHistory:
    """At most `max_tokens` tokens over all salts; the oldest outputs go first.

    Outputs enter the young generation. When it holds half of what is allowed, the old generation
    is dropped whole and the young one takes its place: nothing is ever rebuilt.
    """

    def __init__(self, max_tokens: int, max_match: int) -> None:
        self._max_young = max_tokens // 2
        self._max_match = max_match
        self._young: dict[str, SuffixAutomaton] = {}
        self._old: dict[str, SuffixAutomaton] = {}
        self._num_young = 0

    def __len__(self) -> int:
        """Tokens held, with one for the end of each output."""
        return sum(map(len, (*self._young.values(), *self._old.values())))

    def add(self, salt: str, output: Sequence[int]) -> None:
        """Keep an output, or its end where it is longer than a generation."""
        kept = output[max(0, len(output) - self._max_young + 1) :]
        if not kept or self._max_young < 2:
            return
        if self._num_young + len(kept) + 1 > self._max_young:
            self._young, self._old, self._num_young = {}, self._young, 0
        if salt not in self._young:
            self._young[salt] = SuffixAutomaton(self._max_match)
        self._young[salt].extend((*kept, END))
        self._num_young += len(kept) + 1

    def of(self, salt: str) -> Iterator[SuffixAutomaton]:
        """What is kept for a salt, youngest first."""
        for generation in (self._young, self._old):
            if salt in generation:
                yield generation[salt]
