"""A compiled grammar, and its matcher for the texts of one request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from llguidance import LLMatcher

from forerun.errors import GrammarTooMuch, InvalidGrammar
from forerun.grammars.path import Path

_NUM_KNOWN: Final = 64  # masks kept of a text: more than a round has guesses
_MOST_KEPT: Final = 8  # copies of a matcher kept at earlier tokens; each is as large as its text
# CPU seconds, in which all requests wait: what every step may take, what all steps of a grammar may
# take beyond that, and the rate at which the latter is regained.
_FAIR_STEP, _MOST_SECONDS, _RATE = 0.005, 1.0, 0.1
Found = TypeVar("Found")


class Source:
    """One compiled grammar; every text has a copy of its matcher.

    Copies share what they compute of its expressions, its limits, and the time that they may take.
    `what` is what errors call it."""

    def __init__(self, compile_it: Callable[[], LLMatcher], what: str) -> None:
        self.what = what
        self._compile = compile_it
        self._seconds_left, self._left_at = _MOST_SECONDS, time.monotonic()
        began = time.thread_time()
        self._matcher = compile_it()
        first = self._matcher.deep_copy()
        first.compute_bitmask()  # for some grammars this takes long
        self.seconds = time.thread_time() - began
        if first.is_error():
            raise InvalidGrammar.because(what, first.get_error())

    def copy(self) -> LLMatcher:
        return self._matcher.deep_copy()

    def renewed(self) -> LLMatcher:
        """Return a matcher compiled anew, which shares nothing with earlier copies."""
        self._matcher = self.timed(self._compile)
        return self._matcher.deep_copy()

    def timed(self, work: Callable[[], Found]) -> Found:
        if self._seconds_left < 0 and self._regained() < 0:
            raise GrammarTooMuch.because(self.what, "a step takes too long")
        began = time.thread_time()
        found = work()
        took = time.thread_time() - began
        if took > _FAIR_STEP:
            self._seconds_left = self._regained() - (took - _FAIR_STEP)
        return found

    def _regained(self) -> float:
        now = time.monotonic()
        regained = _RATE * (now - self._left_at)
        self._seconds_left = min(_MOST_SECONDS, self._seconds_left + regained)
        self._left_at = now
        return self._seconds_left


class MatchedGrammar:
    """A `Grammar` that moves back and forth along the texts that it is asked about.

    These differ in a few guesses at their end, and come again when the guesses are verified and
    when drafters learn from them. `ends` are the tokens that end a text.

    If the matcher exceeds limits that it shares with other texts, a newly compiled one reads the
    text again, so that a text fails only by itself.

    To go back, a copy from an earlier token reads on. llguidance's `rollback` is not used: it
    leaves behind what was computed for the tokens taken back, and some masks are then theirs.
    """

    def __init__(self, source: Source, ends: Iterable[int]) -> None:
        self._source = source
        self._matcher = source.copy()
        self._ends = sum([1 << token for token in set(ends)])  # as bits
        self._path = Path()
        self._num_read = 0  # tokens of the path that the matcher has read; none after the end
        self._kept: list[tuple[int, LLMatcher]] = []  # copies, by the tokens that they have read
        self._fork = 0  # where it last went back to, until it has read up to there again
        self._known: dict[int, bytes] = {}  # masks, by the number of tokens before them

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:  # noqa: ARG002
        return True

    def may_loosen(self, output: Sequence[int]) -> bool:  # noqa: ARG002
        return False

    def allowed_bits(self, output: Sequence[int], more: Sequence[int] = ()) -> bytes:
        self._follow(output, more)
        num = len(output) + len(more)
        bits = self._known.get(num)
        if bits is None:
            bits = self._asked(num, LLMatcher.compute_bitmask)
            while len(self._known) >= _NUM_KNOWN:
                del self._known[min(self._known)]
            self._known[num] = bits
        return bits

    def is_over(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        self._follow(output, more)
        num = len(output) + len(more)
        bits = self._known.get(num)
        if bits is not None and int.from_bytes(bits, "little") & ~self._ends:
            return False
        return self._asked(num, LLMatcher.is_stopped)

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        self._follow(output)
        return self._asked(len(output), lambda matcher: matcher.validate_tokens(list(tokens)))

    def _follow(self, output: Sequence[int], more: Sequence[int] = ()) -> None:
        num_same = self._path.follow(output, more)
        if num_same < len(output) + len(more):
            for num in [each for each in self._known if each > num_same]:
                del self._known[num]
            self._go_back_to(num_same)

    def _asked(self, num: int, ask: Callable[[LLMatcher], Found]) -> Found:
        """Ask the matcher about the place after `num` tokens of the path."""
        found = self._source.timed(lambda: self._found(num, ask))
        if self._matcher.is_error():
            self._matcher, self._num_read, self._kept = self._source.renewed(), 0, []
            found = self._source.timed(lambda: self._found(num, ask))
        if self._matcher.is_error():
            raise InvalidGrammar.because(self._source.what, self._matcher.get_error())
        return found

    def _found(self, num: int, ask: Callable[[LLMatcher], Found]) -> Found:
        self._go_to(num)
        return ask(self._matcher)

    def _go_to(self, num: int) -> None:
        """Move the matcher to `num` tokens of the path.

        Copies are kept at the fork and before it, since other guesses will begin there or near."""
        self._go_back_to(num)
        if self._num_read < self._fork <= num:
            for stop in (self._fork - _NUM_KNOWN, self._fork):
                if self._num_read < stop:
                    self._read_to(stop)
                    self._kept.append((self._num_read, self._matcher.deep_copy()))
            del self._kept[:-_MOST_KEPT]
            self._fork = 0
        self._read_to(num)

    def _read_to(self, num: int) -> None:
        """Read on to `num` tokens, but not past the end, where the matcher would lose count."""
        for token in self._path.tokens[self._num_read : num]:
            if self._matcher.is_stopped():  # or in error
                return
            self._matcher.consume_token(token)
            self._num_read += 1

    def _go_back_to(self, num: int) -> None:
        if num < self._num_read:
            while self._kept and self._kept[-1][0] > num:
                self._kept.pop()
            self._num_read, kept = self._kept[-1] if self._kept else (0, None)
            self._matcher = self._source.copy() if kept is None else kept.deep_copy()
            self._fork = num
