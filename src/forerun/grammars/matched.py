"""A grammar beside the text of one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from llguidance import LLMatcher

from forerun.errors import InvalidGrammar
from forerun.types import BoolArray

_FEW: Final = 512  # tokens: what stands between the parts of JSON is chosen among so many


class MatchedGrammar:
    """A `Grammar` that goes back and forth along the texts that it is asked about: they differ by
    a few guesses at their end. `what` it was made from is told where it cannot be used."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, what: str) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._what = what
        self._read: list[int] = []  # what the matcher has read: nothing behind the end
        self._check()

    def fresh(self) -> MatchedGrammar:
        """The same one beside another text."""
        assert not self._read
        return MatchedGrammar(self._matcher.deep_copy(), self._vocab_size, self._what)

    def allowed(self, output: Sequence[int]) -> BoolArray:
        bits = np.frombuffer(self._bits(output), np.uint8)
        found = np.unpackbits(bits, count=min(8 * len(bits), self._vocab_size), bitorder="little")
        if len(found) == self._vocab_size:
            return found.view(np.bool_)
        allowed = np.zeros(self._vocab_size, bool)  # ids beyond the tokenizer's stand for nothing
        allowed[: len(found)] = found
        return allowed

    def choice(self, output: Sequence[int]) -> int | None:
        bits = self._bits(output)
        return hash(bits) if int.from_bytes(bits, "little").bit_count() <= _FEW else None

    def is_over(self, output: Sequence[int]) -> bool:
        self._go_to(output)
        return self._matcher.is_stopped()

    def forced(self, output: Sequence[int]) -> Sequence[int]:
        self._go_to(output)
        tokens = self._matcher.compute_ff_tokens()
        self._check()
        return tokens

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        self._go_to(output)
        num = self._matcher.validate_tokens(list(tokens))
        self._check()
        return num

    def _bits(self, output: Sequence[int]) -> bytes:
        """What may follow, a bit for each token."""
        self._go_to(output)
        bits = self._matcher.compute_bitmask()
        self._check()
        return bits

    def _go_to(self, output: Sequence[int]) -> None:
        """The matcher loses count where it reads on behind the end, so it does not."""
        num_same = _num_same(self._read, output)
        if num_same < len(self._read):
            self._matcher.rollback(len(self._read) - num_same)
            del self._read[num_same:]
        for token in output[num_same:]:
            if self._matcher.is_stopped():
                return
            self._matcher.consume_token(token)
            self._check()
            self._read.append(token)

    def _check(self) -> None:
        """What could not be understood, or would take too long, is of no more use."""
        if self._matcher.is_error():
            raise InvalidGrammar.because(self._what, self._matcher.get_error())


def _num_same(read: Sequence[int], output: Sequence[int]) -> int:
    """At the beginning of both."""
    num = min(len(read), len(output))
    if list(output[:num]) == read[:num]:
        return num
    return next(idx for idx in range(num) if read[idx] != output[idx])
