"""The reasoning at the beginning of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.replies.marks import ReasoningMarks


@dataclass(frozen=True)
class Reasoning:
    """The reasoning that an answer may have.

    `is_begun`: the answer begins within it; otherwise the answer opens it or has none."""

    marks: ReasoningMarks
    is_begun: bool

    @classmethod
    def behind(cls, prompt: str, last: str, marks: ReasoningMarks | None) -> Reasoning | None:
        """Return the reasoning of an answer to `prompt`; None if it can have none.

        `last` is the text of the prompt's last message, if the answer continues that."""
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
        """The texts around the reasoning in the answer."""
        return "" if self.is_begun else self.marks.opens, self.marks.closes

    def end_in(self, text: str) -> int | None:
        """Return where the rest of an answer's text begins, after the mark and white space; None
        if the reasoning has not ended."""
        if not self.is_begun and not text.lstrip().startswith(self.marks.opens):
            return 0
        _, mark, rest = text.partition(self.marks.closes)
        return len(text) - len(rest.lstrip()) if mark else None


_BEFORE, _INSIDE, _BEHIND, _OVER = range(4)


class ReasoningReader:
    """Separates the reasoning from a text that grows.

    White space around the reasoning is left out. Text that may turn out to be such space or a mark
    is held back until it is decided."""

    def __init__(self, reasoning: Reasoning) -> None:
        self._opens, self._closes = reasoning.marks.opens, reasoning.marks.closes
        self._is_begun = reasoning.is_begun
        self._at: int = _BEFORE
        self._text = ""  # held back
        self._has_told = False

    def read(self, text: str, *, is_last: bool = False) -> tuple[str, str]:
        """Take more text; returns more of the reasoning, and more of what follows it."""
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
        """Skip the first mark, which a model may write even if the prompt ends with it."""
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
        """Return how many characters at the end may be the beginning of the second mark."""
        sizes = range(min(len(self._text), len(self._closes) - 1), 0, -1)
        return next((num for num in sizes if self._text.endswith(self._closes[:num])), 0)
