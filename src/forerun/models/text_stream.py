"""Text as it grows, token by token, in whole characters."""

from __future__ import annotations

import codecs
import copy
from dataclasses import dataclass

from forerun.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class Chunk:
    """New text, and the tokens pushed since the last text came out."""

    text: str
    tokens: tuple[int, ...]


class TextStream:
    """Turns tokens into text that never splits a character and is never taken back.

    The chunks, with `finish()` at the end, join to `tokenizer.decode(tokens, skip_special,
    continuing)`. A token that ends inside a character waits for the rest of it.
    """

    def __init__(
        self, tokenizer: Tokenizer, skip_special: bool = True, continuing: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._strip_next = tokenizer.strips_space and not continuing
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting: list[int] = []

    def push(self, token: int) -> Chunk:
        """The text that is certain now; empty while a character is incomplete."""
        self._waiting.append(token)
        return self._emit(self._tokenizer.token_bytes(token, self._skip_special), final=False)

    def fork(self) -> TextStream:
        """An independent stream in the same state: push to one, and the other stays."""
        twin = copy.copy(self)
        twin._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        twin._decoder.setstate(self._decoder.getstate())
        twin._waiting = list(self._waiting)
        return twin

    def finish(self) -> Chunk:
        """What is left: an incomplete character becomes U+FFFD."""
        return self._emit(b"", final=True)

    def _emit(self, new_bytes: bytes, final: bool) -> Chunk:
        if self._strip_next and new_bytes:
            self._strip_next = False
            new_bytes = new_bytes.removeprefix(b" ")
        text = self._decoder.decode(new_bytes, final)
        if not text and not final:
            return Chunk("", ())
        tokens, self._waiting = tuple(self._waiting), []
        return Chunk(text, tokens)
