"""Text as it grows, token by token, in whole characters."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from forerun.models.text.tokenizer import Tokenizer


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
        self._rest = b""  # of a character that is not complete
        self._waiting: list[int] = []

    def push(self, token: int) -> Chunk:
        """The text that is certain now; empty while a character is incomplete."""
        self._waiting.append(token)
        return self._emit(self._tokenizer.token_bytes(token, self._skip_special), final=False)

    def finish(self) -> Chunk:
        """What is left: an incomplete character becomes U+FFFD."""
        return self._emit(b"", final=True)

    def _emit(self, new_bytes: bytes, final: bool) -> Chunk:
        if self._strip_next and new_bytes:
            self._strip_next = False
            new_bytes = new_bytes.removeprefix(b" ")
        text, self._rest = whole_characters(self._rest + new_bytes, final)
        if not text and not final:
            return Chunk("", ())
        tokens, self._waiting = tuple(self._waiting), []
        return Chunk(text, tokens)


def whole_characters(spelled: bytes, final: bool = False) -> tuple[str, bytes]:
    """The text of `spelled`, and the bytes of an incomplete character at its end.

    At the end of a text (`final`) nothing is left: such a character becomes U+FFFD.
    """
    text, num_used = codecs.utf_8_decode(spelled, "replace", final)
    return text, spelled[num_used:]
