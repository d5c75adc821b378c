"""Words and calls, from an answer's text as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forerun.tools.formats import CallFormat
from forerun.tools.headers import Headers
from forerun.tools.tool import Tool


class Words(NamedTuple):
    text: str


class CallBegun(NamedTuple):
    name: str


class Arguments(NamedTuple):
    """More of those of the call that began last."""

    text: str


Piece = Words | CallBegun | Arguments


@dataclass
class _Extent:
    """How far an object in JSON goes."""

    depth: int = 0
    is_in_text: bool = False
    is_escaped: bool = False

    def end_in(self, text: str) -> int | None:
        """Where it ends, if it does."""
        for at, char in enumerate(text):
            if self.is_escaped:
                self.is_escaped = False
            elif self.is_in_text:
                self.is_escaped = char == "\\"
                self.is_in_text = char != '"'
            elif char == '"':
                self.is_in_text = True
            elif char in "{[":
                self.depth += 1
            elif char in "}]":
                self.depth -= 1
                if self.depth == 0:
                    return at + 1
        return None


_WORDS, _ARGUMENTS, _BEHIND = range(3)


class CallReader:
    """What cannot be words any more when a call follows, space too, waits until it is known.

    Where calls have begun a grammar sees to it that more calls follow, and no words; without
    `has_words` there were none before. A call of which not even the name came is left out.
    """

    def __init__(self, form: CallFormat, tools: Sequence[Tool], *, has_words: bool = True) -> None:
        self._triggers = form.triggers(tools)
        self._has_words = has_words
        names = [tool.name for tool in tools]
        self._first = Headers(form.first_ways, names)
        self._next = Headers([form.next_way], names)
        self._text = ""  # that was not told yet
        self._at: int = _WORDS
        self._extent = _Extent()
        self.num_calls = 0

    def read(self, text: str, *, is_last: bool = False) -> list[Piece]:
        """What is known now, with `text` behind all that came before."""
        self._text += text
        pieces: list[Piece] = []
        while (found := self._step()) is not None:
            pieces += found
        if is_last and self._at == _WORDS:
            pieces += self._read_last()
        return pieces

    @property
    def is_whole(self) -> bool:
        """Whether no call has begun that has not ended."""
        return self._at != _ARGUMENTS

    def _step(self) -> list[Piece] | None:
        """None: nothing more is known."""
        if self._at == _ARGUMENTS:
            return self._read_arguments()
        is_behind = self._at != _WORDS
        begun = (self._next if is_behind else self._first).first_in(self._text)
        if begun is None:
            return None if is_behind else self._read_words()
        words = "" if is_behind else self._text[: begun.start].rstrip()
        self._text = self._text[begun.end :]
        self._at, self._extent = _ARGUMENTS, _Extent()
        self.num_calls += 1
        return [*([Words(words)] if words else []), CallBegun(begun.name)]

    def _read_words(self) -> list[Piece] | None:
        certain = self._text[: self._first.num_before(self._text)].rstrip()
        if not certain:
            return None
        self._text = self._text[len(certain) :]
        return [Words(certain)]

    def _read_last(self) -> list[Piece]:
        """Words, but not the beginning of a call that was cut off."""
        text, self._text = self._text, ""
        if not self._has_words:
            return []
        num_words = self._first.num_before(text)
        if text[num_words:].startswith(self._triggers):
            text = text[:num_words].rstrip()
        return [Words(text)] if text else []

    def _read_arguments(self) -> list[Piece] | None:
        if not self._text:
            return None
        end, text = self._extent.end_in(self._text), self._text
        if end is not None:
            self._at = _BEHIND
        self._text = "" if end is None else text[end:]
        return [Arguments(text[:end])]
