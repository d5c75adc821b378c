"""A grammar that waits for its cue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from forerun.grammars.matched import num_alike
from forerun.types import Grammar


class _Cue(NamedTuple):
    """Behind so many tokens of the output; `tokens` spell what the grammar has to read of these."""

    num: int
    tokens: Sequence[int]


class TriggeredGrammar:
    """A `Grammar` that says nothing until one of `triggers` is written: from its first character
    on, the text is what `grammar` allows. A token may spell more than the trigger's end. Where
    that does not fit, nothing has begun.

    `spell` gives a token's bytes, and `read` tokens of any bytes. A list that it was asked about
    may have grown the next time; what it had is not looked at again, however long it is.
    """

    def __init__(
        self,
        grammar: Grammar,
        triggers: Sequence[str],
        spell: Callable[[int], bytes],
        read: Callable[[bytes], Sequence[int]],
    ) -> None:
        self._grammar = grammar
        self._triggers = [text.encode() for text in triggers]
        self._longest = max(map(len, self._triggers))
        self._lasts = {text[-1:] for text in self._triggers}  # of which one ends in each cue
        self._spell = spell
        self._read = read
        self._path: list[int] = []  # the text that was looked through
        self._growing: Sequence[int] = self._path  # a list that begins with so much of it:
        self._num_alike = 0
        self._num_clear = 0  # tokens of the path behind which nothing has begun
        self._cue: _Cue | None = None  # behind the next one

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        return self._cue_in(output, more) is not None

    def allowed_bits(self, output: Sequence[int]) -> bytes:
        cue = self._cue_in(output)
        assert cue is not None, "asked where it does not bind"
        return self._grammar.allowed_bits(_behind(cue, output))

    def is_over(self, output: Sequence[int]) -> bool:
        cue = self._cue_in(output)
        return cue is not None and self._grammar.is_over(_behind(cue, output))

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        cue = self._cue_in(output, tokens)
        if cue is None:
            return len(tokens)
        num_free = max(0, cue.num - len(output))
        known = _behind(cue, output)
        return num_free + self._grammar.num_fitting(known, tokens[num_free:])

    def _cue_in(self, output: Sequence[int], more: Sequence[int] = ()) -> _Cue | None:
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
                return _Cue(first + cue.num, cue.tokens)
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

    def _completed(self, output: Sequence[int], idx: int) -> _Cue | None:
        """Whether that token completes a trigger: the first that fits."""
        piece = self._spell(output[idx])
        if not any(last in piece for last in self._lasts):
            return None
        before, first = b"", idx
        while first > 0 and len(before) < self._longest - 1:
            first -= 1
            before = self._spell(output[first]) + before
        text = before + piece
        for at in sorted({at for each in self._triggers for at in _places(each, text, before)}):
            tokens = self._read(text[at:])
            if self._grammar.num_fitting((), tokens) == len(tokens):
                return _Cue(idx + 1, tokens)
        return None


def _places(trigger: bytes, text: bytes, before: bytes) -> list[int]:
    """Where it stands in `text`, and not all of it in what is `before`."""
    found, at = list[int](), len(before) - len(trigger)
    while (at := text.find(trigger, max(0, at + 1))) >= 0:
        found.append(at)
    return found


def _behind(cue: _Cue, output: Sequence[int]) -> list[int]:
    """What the grammar reads of an output."""
    return [*cue.tokens, *output[cue.num :]]
