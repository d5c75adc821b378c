"""What an answer reasons before it says anything."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.replies.marks import ReasoningMarks


@dataclass(frozen=True)
class Reasoning:
    """`is_begun` before the answer, which else opens it, or has none."""

    marks: ReasoningMarks
    is_begun: bool

    @classmethod
    def behind(cls, prompt: str, last: str, marks: ReasoningMarks | None) -> Reasoning | None:
        """In an answer to a prompt; `last` are the words in it that the answer goes on with, if it
        does. None: there is none any more."""
        if marks is None:
            return None
        end = prompt.rstrip()
        if end.endswith(marks.closes):
            return None
        is_begun = end.endswith(marks.opens)
        if last.strip() and not is_begun:
            if last.rfind(marks.opens) <= last.rfind(marks.closes):
                return None
            is_begun = True
        return cls(marks, is_begun or marks.is_certain)

    @property
    def texts(self) -> tuple[str, str]:
        """What stands around it in the answer."""
        return "" if self.is_begun else self.marks.opens, self.marks.closes

    def end_in(self, text: str) -> int | None:
        """How far it goes in an answer's text, with the mark and the space behind it; None: it is
        not over."""
        if not self.is_begun and not text.lstrip().startswith(self.marks.opens):
            return 0
        _, mark, rest = text.partition(self.marks.closes)
        return len(text) - len(rest.lstrip()) if mark else None


_BEFORE, _INSIDE, _BEHIND, _OVER = range(4)


class ReasoningReader:
    """Takes reasoning from the beginning of a text as it grows. The space around it is left out,
    and what may be space or a mark waits until it is known."""

    def __init__(self, reasoning: Reasoning) -> None:
        self._opens, self._closes = reasoning.marks.opens, reasoning.marks.closes
        self._is_begun = reasoning.is_begun
        self._at: int = _BEFORE
        self._text = ""  # that was not told yet
        self._has_told = False

    def read(self, text: str, *, is_last: bool = False) -> tuple[str, str]:
        """More of the reasoning, and more of what comes behind it."""
        self._text += text
        found = ""
        if self._at == _BEFORE:
            self._look_for_opening(is_last=is_last)
        if self._at == _INSIDE:
            found = self._read_reasoning(is_last=is_last)
        if self._at == _BEHIND and (rest := self._text.lstrip()):
            self._at, self._text = _OVER, rest
        if self._at != _OVER:
            return found, ""
        rest, self._text = self._text, ""
        return found, rest

    def _look_for_opening(self, *, is_last: bool) -> None:
        """A model may write the mark although the prompt has it."""
        text = self._text.lstrip()
        if text.startswith(self._opens):
            self._at, self._text = _INSIDE, text[len(self._opens) :]
        elif is_last or not self._opens.startswith(text):
            self._at = _INSIDE if self._is_begun else _OVER

    def _read_reasoning(self, *, is_last: bool) -> str:
        if not self._has_told:
            self._text = self._text.lstrip()
        at = self._text.find(self._closes)
        if at >= 0:
            found, self._text = self._text[:at], self._text[at + len(self._closes) :]
            self._at = _BEHIND
            return found.rstrip()
        num = len(self._text) if is_last else len(self._text) - self._num_begun()
        found = self._text[:num].rstrip()
        self._text = self._text[len(found) :]
        self._has_told = self._has_told or bool(found)
        return found

    def _num_begun(self) -> int:
        """Characters at the end that may be the beginning of the mark behind the reasoning."""
        sizes = range(min(len(self._text), len(self._closes) - 1), 0, -1)
        return next((num for num in sizes if self._text.endswith(self._closes[:num])), 0)
