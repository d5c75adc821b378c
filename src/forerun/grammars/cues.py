"""Texts that a grammar waits for, in tokens as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from forerun.grammars.path import Path


class Cue(NamedTuple):
    """Behind so many tokens of the output; `tokens` spell what the grammar has to read of these."""

    num: int
    tokens: Sequence[int]


class Cues:
    """Finds where one of `texts` is complete for the first time. A token may spell more than its
    end: `begin` is given all from its first character on, and says what of it the grammar has to
    read, or None where that does not fit: then it was none.

    `spell` gives a token's bytes. A list that it was asked about may have grown the next time; what
    it had is not looked at again, however long it is.
    """

    def __init__(
        self,
        texts: Sequence[str],
        spell: Callable[[int], bytes],
        begin: Callable[[bytes], Sequence[int] | None],
    ) -> None:
        self._texts = frozenset(text.encode() for text in texts)
        self._sizes = sorted({len(text) for text in self._texts})
        self._longest = self._sizes[-1]
        self._lasts = {text[-1] for text in self._texts}  # of which one ends in each cue
        self._spell = spell
        self._begin = begin
        self._path = Path()
        self._num_clear = 0  # tokens of the path behind which nothing has begun
        self._cue: Cue | None = None  # behind the next one

    def first_in(self, output: Sequence[int], more: Sequence[int] = ()) -> Cue | None:
        """In `output` with `more` behind it, which is not kept."""
        num_same = self._path.follow(output)
        if self._cue is None or num_same <= self._num_clear:
            self._cue, self._num_clear = None, min(self._num_clear, num_same)
        while self._cue is None and self._num_clear < len(output):
            self._cue = self._completed(output, self._num_clear)
            self._num_clear += self._cue is None
        if self._cue is not None or not more:
            return self._cue
        first, num_bytes = len(output), 0
        while first > 0 and num_bytes < self._longest:
            first -= 1
            num_bytes += len(self._spell(output[first]))
        text = (*output[first:], *more)
        for idx in range(len(output) - first, len(text)):
            if (cue := self._completed(text, idx)) is not None:
                return Cue(first + cue.num, cue.tokens)
        return None

    def _completed(self, output: Sequence[int], idx: int) -> Cue | None:
        """Whether that token completes one of the texts: the first that fits."""
        piece = self._spell(output[idx])
        if self._lasts.isdisjoint(piece):
            return None
        before, first = b"", idx
        while first > 0 and len(before) < self._longest - 1:
            first -= 1
            before = self._spell(output[first]) + before
        text = before + piece
        for start in self._starts(text, len(before)):
            tokens = self._begin(text[start:])
            if tokens is not None:
                return Cue(idx + 1, tokens)
        return None

    def _starts(self, text: bytes, num_before: int) -> list[int]:
        """Of those that end behind so many bytes, also where one begins within another."""
        ends = (end for end in range(num_before + 1, len(text) + 1) if text[end - 1] in self._lasts)
        return sorted(
            {
                end - size
                for end in ends
                for size in self._sizes
                if size <= end and text[end - size : end] in self._texts
            }
        )


class Behind:
    """What a grammar reads of an output behind a cue: of a list that grows, one that grows too."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._growing: Sequence[int] | None = None  # whose first tokens, so many, were read:
        self._num_read = 0
        self._cue: Cue | None = None

    def of(self, output: Sequence[int], cue: Cue, num_skipped: int = 0) -> list[int]:
        start = cue.num + num_skipped
        is_growing = output is self._growing and cue is self._cue
        if is_growing and start <= self._num_read <= len(output):
            self._tokens += output[self._num_read :]
        else:
            self._tokens = [*cue.tokens, *output[start:]]
            self._growing, self._cue = output, cue
        self._num_read = len(output)
        return self._tokens
