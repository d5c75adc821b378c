"""Finished outputs of earlier requests, separated by salt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from forerun.drafters.suffix_automaton import SuffixAutomaton

END: Final = -2  # follows every output; no token has this id, so no match crosses it


class OutputHistory:
    """At most `max_tokens` tokens of outputs over all salts; the oldest are dropped first.

    Outputs enter the young generation. When that has half of `max_tokens`, the old generation is
    dropped as a whole and the young one takes its place, so no automaton is ever rebuilt.
    """

    def __init__(self, max_tokens: int, max_match: int) -> None:
        self._max_young = max_tokens // 2
        self._max_match = max_match
        self._young: dict[str, SuffixAutomaton] = {}
        self._old: dict[str, SuffixAutomaton] = {}
        self._num_young = 0

    def __len__(self) -> int:
        """Return the number of tokens kept, with one `END` for each output."""
        return sum(map(len, (*self._young.values(), *self._old.values())))

    def add(self, salt: str, output: Sequence[int]) -> None:
        """Keep an output, or its end if it is longer than a generation."""
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
        """Yield the automatons of a salt, youngest first."""
        for generation in (self._young, self._old):
            if salt in generation:
                yield generation[salt]
