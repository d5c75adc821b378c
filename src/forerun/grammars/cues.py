"""Find the texts that a grammar waits for, its cues, in an output that grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from forerun.grammars.path import Path

LEAD: Final = "\n\n"  # taken to stand before every output: a text starts where a paragraph may


class Cue(NamedTuple):
    """A cue that is complete after `num` tokens of the output.

    `tokens` spell what the grammar has to read of these."""

    num: int
    tokens: Sequence[int]


class Cues:
    """Finds where one of `texts` is complete for the first time, in the output behind `LEAD`.

    The token that completes a text may spell more. `begin` gets all bytes from the text's first
    character on, and returns the tokens that the grammar has to read of them, or None if they do
    not fit: then it was no cue. `spell` returns a token's bytes.

    A list may have grown when it is asked about again; its earlier tokens are not read again.
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
        self._lasts = {text[-1] for text in self._texts}  # no other byte completes a text
        self._spell = spell
        self._begin = begin
        self._path = Path()
        self._num_clear = 0  # tokens of the path, from the first on, that complete no cue
        self._cue: Cue | None = None  # the cue that the next token completes

    def first_in(self, output: Sequence[int], more: Sequence[int] = ()) -> Cue | None:
        """Return the first cue in `output` followed by `more`; one in `more` is not remembered."""
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
        """Return the cue that token `idx` completes, if any: of several the first that fits."""
        piece = self._spell(output[idx])
        if self._lasts.isdisjoint(piece):
            return None
        before, first = b"", idx
        while first > 0 and len(before) < self._longest - 1:
            first -= 1
            before = self._spell(output[first]) + before
        if first == 0:
            before = LEAD.encode() + before
        text = before + piece
        for start in self._starts(text, len(before)):
            tokens = self._begin(text[start:])
            if tokens is not None:
                return Cue(idx + 1, tokens)
        return None

    def _starts(self, text: bytes, num_before: int) -> list[int]:
        """Return the starts of all texts that end after the first `num_before` bytes, overlapping
        ones included."""
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
    """The tokens that a grammar reads of an output after a cue: a list that grows with the output.

    So the grammar's own `Path` recognises it."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._growing: Sequence[int] | None = None  # the last output; `_num_read` tokens were read
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
