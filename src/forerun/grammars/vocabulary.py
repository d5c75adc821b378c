"""A tokenizer in the form that llguidance reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from llguidance import LLTokenizer, TokenizerWrapper

from forerun.errors import InvalidOption
from forerun.models.text.tokenizer import Tokenizer

_MARK: Final = "\x02"  # no token continues across it
# Special tokens around calls and reasoning in an answer, which are text to grammars.
_SPOKEN_SPECIAL: Final = (
    *("[TOOL_CALLS]", "<tool_call>", "</tool_call>"),
    *("<think>", "</think>", "[THINK]", "[/THINK]"),
)

# Slices of the vocabulary whose masks llguidance computes in advance: white space, and text within
# JSON strings, by length, since a bounded string may have few characters left.
_IN_JSON: Final = r'[^"\\\x00-\x1F\x7F]'
_LENGTHS: Final = (4, 8, 10, 16, 30)
_KINDS: Final = (
    r"[\x20\x0A\x0D\x09]+",
    *(f"{_IN_JSON}{{1,{length}}}" for length in _LENGTHS),
    f"{_IN_JSON}+",
)
_MAX_KEPT: Final = 4096  # texts whose tokens are kept,
_SHORT: Final = 256  # each of at most so many bytes

_PARTS: Final = re.compile(f"({'|'.join(map(re.escape, _SPOKEN_SPECIAL))})")


class _Spoken:
    """A tokenizer in the form that llguidance wraps."""

    def __init__(self, tokenizer: Tokenizer, *, shows_special: bool) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = tokenizer.eos_ids[0]
        self.bos_token_id = tokenizer.bos_id
        self._special = spoken_special(tokenizer) if shows_special else {}
        self.special_token_ids = sorted(tokenizer.special_ids - set(self._special.values()))
        self.tokens = [
            tokenizer.token_bytes(token, skip_special=False)
            for token in range(tokenizer.vocab_size)
        ]
        # llguidance asks about a forced text again after each of its tokens.
        self._known = lru_cache(_MAX_KEPT)(self._tokens_of)

    def __call__(self, text: bytes) -> Sequence[int]:
        return self._known(text) if len(text) <= _SHORT else self._tokens_of(text)

    def _tokens_of(self, text: bytes) -> list[int]:
        """Return the tokens of text that follows other text.

        If the tokenizer puts a space before a text, `_MARK` is put in front and its tokens are left
        out."""
        found: list[int] = []
        for part in _PARTS.split(text.decode("utf-8", "replace")):
            found += [self._special[part]] if part in self._special else self._spell(part)
        return found

    def _spell(self, spelled: str) -> list[int]:
        if not self._tokenizer.strips_space:
            return self._encode(spelled)
        mark, found = self._encode(_MARK), self._encode(_MARK + spelled)
        return found[len(mark) :] if found[: len(mark)] == mark else []

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False, parse_special=False)


def spoken_special(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the special tokens that are text to grammars, if a request's text shows them."""
    tokens = {tokenizer.token(token): token for token in tokenizer.special_ids}
    return {name: token for name, token in tokens.items() if name in _SPOKEN_SPECIAL}


def vocabulary(tokenizer: Tokenizer, *, shows_special: bool) -> LLTokenizer:
    """Return llguidance's tokenizer; making it takes some tenths of a second."""
    _need_an_end(tokenizer)
    wrapped = TokenizerWrapper(_Spoken(tokenizer, shows_special=shows_special))
    return LLTokenizer(wrapped, eos_token=list(tokenizer.eos_ids), slices=list(_KINDS))


def told(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the vocabulary as JSON values, for another process."""
    _need_an_end(tokenizer)
    words = _Spoken(tokenizer, shows_special=True)
    return {
        "tokens": [token.decode("latin-1") for token in words.tokens],
        "ends": list(tokenizer.eos_ids),
        "begins": words.bos_token_id,
        "special": words.special_token_ids,
    }


def _need_an_end(tokenizer: Tokenizer) -> None:
    if not tokenizer.eos_ids:
        raise InvalidOption(
            "structured_outputs needs a token that ends a text, and this tokenizer has none."
        )
