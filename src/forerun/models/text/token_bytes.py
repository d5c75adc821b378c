"""The bytes of tokens, which are joined before they are decoded.

Models of this family have two kinds of vocabulary. *Byte-level* BPE writes each byte as one
printable character (a space is "Ġ"). *SentencePiece* writes text as it is, with "▁" for a space,
and bytes that it has no piece for as "<0x0A>".
"""

from __future__ import annotations

import codecs
import enum
import re
from typing import Final


class Spelling(enum.Enum):
    """How a vocabulary writes bytes."""

    BYTE_LEVEL = "byte-level"
    SENTENCEPIECE = "sentencepiece"


_BYTE_PIECE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_letters() -> dict[str, int]:
    """Return GPT-2's alphabet: printable Latin-1 bytes as themselves, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    letters.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return letters


# The byte that each letter of a byte-level vocabulary stands for.
BYTE_LETTERS: Final = _byte_letters()


def token_bytes(token: str, spelling: Spelling) -> bytes:
    """Return the bytes of one ordinary token; special and added tokens are plain text instead."""
    if spelling is Spelling.BYTE_LEVEL:
        if all(letter in BYTE_LETTERS for letter in token):
            return bytes(BYTE_LETTERS[letter] for letter in token)
        return token.encode()
    match = _BYTE_PIECE.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace("▁", " ").encode()


def whole_characters(spelled: bytes, final: bool = False) -> tuple[str, bytes]:
    """Return the text of `spelled`, and the bytes of an incomplete character at its end.

    At the end of a text (`final`) such a character becomes U+FFFD, and no bytes are left.
    """
    text, num_used = codecs.utf_8_decode(spelled, "replace", final)
    return text, spelled[num_used:]
