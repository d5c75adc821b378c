"""A grammar beside the text of one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from llguidance import LLMatcher

from forerun.errors import InvalidGrammar

_NUM_KNOWN: Final = 64  # beginnings of a text: more than a round guesses
Found = TypeVar("Found")


class MatchedGrammar:
    """A `Grammar` that goes back and forth along the texts that it is asked about: they differ by
    a few guesses at their end, and are asked about again when these are judged, and learnt from.

    What a matcher learns, and its limits, it shares with its copies beside other texts. Where one
    comes to an end of these, `renew` brings one that shares nothing, and the text is read again:
    only what fails by itself fails. `what` it was made from is told then.
    """

    def __init__(self, matcher: LLMatcher, renew: Callable[[], LLMatcher], what: str) -> None:
        self._matcher = matcher
        self._renew = renew
        self._what = what
        self._read: list[int] = []  # what the matcher has read: nothing behind the end
        self._path: list[int] = []  # the text that was asked about
        self._known: dict[int, bytes] = {}  # what may follow its beginnings, by their length

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:  # noqa: ARG002
        return True

    def allowed_bits(self, output: Sequence[int]) -> bytes:
        num_same = num_alike(self._path, output)
        if num_same < len(output):
            for num in range(num_same + 1, len(self._path) + 1):
                self._known.pop(num, None)
            self._path[num_same:] = output[num_same:]
            while len(self._known) >= _NUM_KNOWN:
                del self._known[min(self._known)]
        bits = self._known.get(len(output))
        if bits is None:
            bits = self._asked(output, LLMatcher.compute_bitmask)
            self._known[len(output)] = bits
        return bits

    def is_over(self, output: Sequence[int]) -> bool:
        return self._asked(output, LLMatcher.is_stopped)

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        return self._asked(output, lambda matcher: matcher.validate_tokens(list(tokens)))

    def _asked(self, output: Sequence[int], ask: Callable[[LLMatcher], Found]) -> Found:
        """What the matcher says behind `output`."""
        for is_last in (False, True):
            self._go_to(output)
            found = ask(self._matcher)
            if not self._matcher.is_error():
                return found
            complaint = self._matcher.get_error()
            self._matcher, self._read = self._renew().deep_copy(), []
            if is_last or self._matcher.is_error():
                break
        raise InvalidGrammar.because(self._what, complaint)

    def _go_to(self, output: Sequence[int]) -> None:
        """The matcher loses count where it reads on behind the end, so it does not."""
        num_same = num_alike(self._read, output)
        if num_same < len(self._read):
            is_back = self._matcher.rollback(len(self._read) - num_same)
            assert is_back or self._matcher.is_error(), self._what
            del self._read[num_same:]
        for token in output[num_same:]:
            if self._matcher.is_stopped():  # or in error
                return
            self._matcher.consume_token(token)
            self._read.append(token)


def num_alike(known: Sequence[int], output: Sequence[int]) -> int:
    """At the beginning of both."""
    num = min(len(known), len(output))
    if list(output[:num]) == known[:num]:
        return num
    return next(idx for idx in range(num) if known[idx] != output[idx])
