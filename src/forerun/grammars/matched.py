"""A grammar beside the text of one request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from llguidance import LLMatcher

from forerun.errors import GrammarTooMuch, InvalidGrammar
from forerun.grammars.path import Path

_NUM_KNOWN: Final = 64  # beginnings of a text: more than a round guesses
_MOST_SECONDS: Final = 1.0  # of a processor, for one answer: all requests wait for it
Found = TypeVar("Found")


class MatchedGrammar:
    """A `Grammar` that goes back and forth along the texts that it is asked about: they differ by
    a few guesses at their end, and are asked about again when these are judged, and learnt from.

    What a matcher learns, and its limits, it shares with its copies beside other texts. Where one
    comes to an end of these, `renew` brings one that shares nothing, and the text is read again:
    only what fails by itself fails. `what` it was made from is told then. `ends` are the tokens that
    end a text.
    """

    def __init__(
        self, matcher: LLMatcher, renew: Callable[[], LLMatcher], what: str, ends: Iterable[int]
    ) -> None:
        self._matcher = matcher
        self._renew = renew
        self._what = what
        self._ends = sum([1 << token for token in set(ends)])  # as bits
        self._path = Path()
        self._num_read = 0  # of its tokens, by the matcher: nothing behind the end
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
        for is_last in (False, True):
            began = time.thread_time()
            self._go_to(num)
            found = ask(self._matcher)
            if time.thread_time() - began > _MOST_SECONDS:
                raise GrammarTooMuch.because(self._what, "a step takes too long")
            if not self._matcher.is_error():
                return found
            complaint = self._matcher.get_error()
            self._matcher, self._num_read = self._renew().deep_copy(), 0
            if is_last or self._matcher.is_error():
                break
        raise InvalidGrammar.because(self._what, complaint)

    def _go_to(self, num: int) -> None:
        """The matcher loses count where it reads on behind the end, so it does not."""
        self._go_back_to(num)
        for token in self._path.tokens[self._num_read : num]:
            if self._matcher.is_stopped():  # or in error
                return
            self._matcher.consume_token(token)
            self._num_read += 1

    def _go_back_to(self, num: int) -> None:
        if num < self._num_read:
            is_back = self._matcher.rollback(self._num_read - num)
            assert is_back or self._matcher.is_error(), self._what
            self._num_read = num
