"""Texts that a grammar waits for, in tokens as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from forerun.grammars.matched import num_alike


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
        self._texts = [text.encode() for text in texts]
        self._longest = max(map(len, self._texts))
        self._lasts = {text[-1:] for text in self._texts}  # of which one ends in each cue
        self._spell = spell
        self._begin = begin
        self._path: list[int] = []  # the text that was looked through
        self._growing: Sequence[int] = self._path  # a list that begins with so much of it:
        self._num_alike = 0
        self._num_clear = 0  # tokens of the path behind which nothing has begun
        self._cue: Cue | None = None  # behind the next one

    def first_in(self, output: Sequence[int], more: Sequence[int] = ()) -> Cue | None:
        """In `output` with `more` behind it, which is not kept."""
        self._follow(output)
        while self._cue is None and self._num_clear < len(output):
            self._cue = self._completed(output, self._num_clear)
            self._num_clear += self._cue is None
        if self._cue is not None or not more:
            return self._cue
        first = max(0, len(output) - self._longest)
        text = (*output[first:], *more)
        for idx in range(len(output) - first, len(text)):
            if (cue := self._completed(text, idx)) is not None:
                return Cue(first + cue.num, cue.tokens)
        return None

    def _follow(self, output: Sequence[int]) -> None:
        """Forget what is not in `output`, and read what is new."""
        if output is self._growing and len(output) >= self._num_alike:
            num_same = self._num_alike
        else:
            num_same = num_alike(self._path, output)
            if isinstance(output, list):
                self._growing = output
        if self._cue is None or num_same <= self._num_clear:
            self._cue, self._num_clear = None, min(self._num_clear, num_same)
        self._path[num_same:] = output[num_same:]
        is_growing = output is self._growing
        self._num_alike = len(output) if is_growing else min(self._num_alike, num_same)

    def _completed(self, output: Sequence[int], idx: int) -> Cue | None:
        """Whether that token completes one of the texts: the first that fits."""
        piece = self._spell(output[idx])
        if not any(last in piece for last in self._lasts):
            return None
        before, first = b"", idx
        while first > 0 and len(before) < self._longest - 1:
            first -= 1
            before = self._spell(output[first]) + before
        text = before + piece
        for at in sorted({at for each in self._texts for at in _places(each, text, before)}):
            tokens = self._begin(text[at:])
            if tokens is not None:
                return Cue(idx + 1, tokens)
        return None


def _places(wanted: bytes, text: bytes, before: bytes) -> list[int]:
    """Where it stands in `text`, and not all of it in what is `before`."""
    found, at = list[int](), len(before) - len(wanted)
    while (at := text.find(wanted, max(0, at + 1))) >= 0:
        found.append(at)
    return found
