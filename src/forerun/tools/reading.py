"""Splits an answer's text, as it grows, into words and calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forerun.grammars.cues import LEAD
from forerun.tools.formats import CallFormat
from forerun.tools.headers import Headers
from forerun.tools.tool import Tool


class Words(NamedTuple):
    text: str


class CallBegun(NamedTuple):
    name: str


class Arguments(NamedTuple):
    """More of the latest call's arguments."""

    text: str


Piece = Words | CallBegun | Arguments


@dataclass
class _Extent:
    """Finds the end of a JSON object that arrives in pieces."""

    depth: int = 0
    is_in_text: bool = False
    is_escaped: bool = False

    def end_in(self, text: str) -> int | None:
        """Return the index in `text`, the next piece, after the object's last character; None if
        the object goes on."""
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
    """Splits a growing text into words and calls.

    Text that may turn out to begin a call is held back, and so is white space before it. After the
    first call the grammar allows only calls; without `has_words` it allows no words before them
    either. A call that is cut off before its arguments is left out.
    """

    def __init__(self, form: CallFormat, tools: Sequence[Tool], *, has_words: bool = True) -> None:
        self._triggers = form.triggers(tools)
        self._has_words = has_words
        names = [tool.name for tool in tools]
        self._first = Headers(form.first_ways, names)
        self._next = Headers([form.next_way], names)
        self._text = LEAD  # what is held back; some calls begin with these line breaks
        self._num_lead = len(LEAD)  # characters of `_text` that are not the answer's
        self._num_searched = 0  # characters of `_text` within which no header ends
        self._at: int = _WORDS
        self._extent = _Extent()
        self.num_calls = 0

    def read(self, text: str, *, is_last: bool = False) -> list[Piece]:
        """Return the pieces that are certain after `text`, the next part of the answer."""
        self._text += text
        pieces: list[Piece] = []
        while (found := self._step()) is not None:
            pieces += found
        if is_last and self._at == _WORDS:
            pieces += self._read_last()
        return pieces

    @property
    def is_whole(self) -> bool:
        """Whether every call that has begun is complete."""
        return self._at != _ARGUMENTS

    def _step(self) -> list[Piece] | None:
        """Return the next pieces, or None if more text is needed."""
        if self._at == _ARGUMENTS:
            return self._read_arguments()
        is_behind = self._at == _BEHIND
        headers = self._next if is_behind else self._first
        begun = headers.first_in(self._text, self._num_searched)
        num_before = headers.num_before(self._text) if begun is None else begun.start
        certain = self._text[:num_before].rstrip()
        words = [] if is_behind else self._words(certain)
        if begun is None:
            self._text = self._text[len(certain) :]
            self._num_searched = len(self._text)
            return words or None
        self._text = self._text[begun.end :]
        self._at, self._extent, self._num_searched = _ARGUMENTS, _Extent(), 0
        self.num_calls += 1
        return [*words, CallBegun(begun.name)]

    def _words(self, text: str) -> list[Piece]:
        if not text:
            return []
        said, self._num_lead = text[self._num_lead :], 0
        return [Words(said)] if said else []

    def _read_last(self) -> list[Piece]:
        """Return the words held back, but not the beginning of a call that was cut off."""
        text, self._text = self._text, ""
        if not self._has_words:
            return []
        num_words = self._first.num_before(text)
        if text[num_words:].startswith(self._triggers):
            text = text[:num_words].rstrip()
        return self._words(text)

    def _read_arguments(self) -> list[Piece] | None:
        if not self._text:
            return None
        end, text = self._extent.end_in(self._text), self._text
        if end is not None:
            self._at = _BEHIND
        self._text = "" if end is None else text[end:]
        return [Arguments(text[:end])]
