"""A grammar beside the text of one request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from llguidance import LLMatcher

from forerun.errors import GrammarTooMuch, InvalidGrammar
from forerun.grammars.path import Path

_NUM_KNOWN: Final = 64  # beginnings of a text: more than a round guesses
_MOST_KEPT: Final = 8  # matchers behind beginnings; each is as large as its text
# Seconds of a processor in which all requests wait: what a step may take by all means, and what all
# together may take beyond that. These come back at this rate.
_FAIR_STEP, _MOST_SECONDS, _RATE = 0.005, 1.0, 0.1
Found = TypeVar("Found")


class Source:
    """One grammar, compiled; texts have copies. These share what they learn of its expressions, its
    limits, and the time that they may take. `what` it was made from is told to people."""

    def __init__(self, compile_it: Callable[[], LLMatcher], what: str) -> None:
        self.what = what
        self._compile = compile_it
        self._seconds_left, self._left_at = _MOST_SECONDS, time.monotonic()
        began = time.thread_time()
        self._matcher = compile_it()
        first = self._matcher.deep_copy()
        first.compute_bitmask()  # which takes some long
        self.seconds = time.thread_time() - began
        if first.is_error():
            raise InvalidGrammar.because(what, first.get_error())

    def copy(self) -> LLMatcher:
        return self._matcher.deep_copy()

    def renewed(self) -> LLMatcher:
        """One that shares nothing with those there were."""
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
    """A `Grammar` that goes back and forth along the texts that it is asked about: they differ by
    a few guesses at their end, and are asked about again when these are judged, and learnt from.

    Where its matcher comes to an end of what it shares with others, the text is read again by one
    that shares nothing: only what fails by itself fails. `ends` are the tokens that end a text.

    No matcher goes back itself: llguidance's `rollback` leaves behind what was computed for the
    tokens that it takes back, and some masks are theirs. A copy reads on from a beginning.
    """

    def __init__(self, source: Source, ends: Iterable[int]) -> None:
        self._source = source
        self._matcher = source.copy()
        self._ends = sum([1 << token for token in set(ends)])  # as bits
        self._path = Path()
        self._num_read = 0  # of its tokens, by the matcher: nothing behind the end
        self._kept: list[tuple[int, LLMatcher]] = []  # as they were, having read so many
        self._fork = 0  # where it went back to, until it is there again
        self._known: dict[int, bytes] = {}  # what may follow its beginnings, by their length

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
        """What the matcher says behind so many tokens of the path."""
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
        """What stands where it went back to is kept: other guesses will begin there, or near."""
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
        """The matcher loses count where it reads on behind the end, so it does not."""
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
