"""A tokenizer as llguidance reads it."""

from __future__ import annotations

from llguidance import LLTokenizer, TokenizerWrapper

from forerun.errors import InvalidOption
from forerun.models.text.tokenizer import Tokenizer


class _Spoken:
    """A tokenizer in the words of llguidance."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = tokenizer.eos_ids[0]
        self.bos_token_id = tokenizer.bos_id
        self.special_token_ids = sorted(tokenizer.special_ids)
        self.tokens = [
            tokenizer.token_bytes(token, skip_special=False)
            for token in range(tokenizer.vocab_size)
        ]

    def __call__(self, text: bytes) -> list[int]:
        spelled = text.decode("utf-8", "replace")
        return self._tokenizer.encode(spelled, add_special=False, parse_special=False)


def vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    """It takes some tenths of a second."""
    if not tokenizer.eos_ids:
        raise InvalidOption(
            "structured_outputs needs a token that ends a text, and this tokenizer has none."
        )
    wrapped = TokenizerWrapper(_Spoken(tokenizer))
    return LLTokenizer(wrapped, eos_token=list(tokenizer.eos_ids))
