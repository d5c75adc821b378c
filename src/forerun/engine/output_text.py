"""The text of an output as it grows, and where a stop string ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forerun.models.text_stream import TextStream
from forerun.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class OutputText:
    """A value: `push` returns the text with one more token, and nothing is taken back.

    `text` holds whole characters only. `stop` is the stop string that was met; then `text` ends
    where the caller wants it to.
    """

    stream: TextStream
    stops: tuple[str, ...]
    include_stop: bool
    text: str = ""
    stop: str | None = None
    num_exempt: int = 0  # characters in which no stop string counts: see `min_tokens`

    @classmethod
    def start(
        cls, tokenizer: Tokenizer, stops: Sequence[str], *, include_stop: bool, skip_special: bool
    ) -> OutputText:
        return cls(TextStream(tokenizer, skip_special), tuple(stops), include_stop)

    def push(self, token: int, *, may_stop: bool = True) -> OutputText:
        stream = self.stream.fork()
        new = stream.push(token).text
        if not may_stop:
            text = self.text + new
            return replace(self, stream=stream, text=text, num_exempt=len(text))
        return self._grown(stream, new)

    def finish(self) -> OutputText:
        """The end: a character that was never completed shows as U+FFFD."""
        if self.stop is not None:
            return self
        stream = self.stream.fork()
        return self._grown(stream, stream.finish().text)

    def _grown(self, stream: TextStream, new: str) -> OutputText:
        text = self.text + new
        hits = [(text.find(stop, self._search_from(stop)), stop) for stop in self.stops]
        begun = [(at, stop) for at, stop in hits if at >= 0]
        if not begun:
            return replace(self, stream=stream, text=text)
        at, stop = min(begun)
        end = at + len(stop) if self.include_stop else at
        return replace(self, stream=stream, text=text[:end], stop=stop)

    def _search_from(self, stop: str) -> int:
        """A stop string that was not there before ends in the new text."""
        return max(self.num_exempt, len(self.text) - len(stop) + 1)

    @property
    def num_certain(self) -> int:
        """Characters that no later token can cut off: all but a stop string's possible start."""
        if self.stop is not None:
            return len(self.text)
        return len(self.text) - max((_overlap(self.text, stop) for stop in self.stops), default=0)


def _overlap(text: str, stop: str) -> int:
    """The longest end of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
