"""A tokenizer, written as JSON, whose tokens are letters and a few longer pieces."""

from __future__ import annotations

from functools import cache

import tokenizers

from forerun.models.text.token_bytes import BYTE_LETTERS, Spelling
from forerun.models.text.tokenizer import Tokenizer, TokenizerTraits

EOS = "<|end|>"
LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789 .,:-\n"{}[]'
PIECES = ("na", "me", "name", '":', '{"', '",', "ab", "abc")


@cache
def words() -> Tokenizer:
    spelled = {byte: letter for letter, byte in BYTE_LETTERS.items()}

    def piece(text: str) -> str:
        return "".join(spelled[byte] for byte in text.encode())

    tokens = [piece(text) for text in (*LETTERS, *PIECES)]
    merges = [
        next((t[:n], t[n:]) for n in range(1, len(t)) if {t[:n], t[n:]} <= set(tokens))
        for t in map(piece, PIECES)
    ]
    vocab, end = {token: idx for idx, token in enumerate(tokens)}, len(tokens)
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens([EOS])
    return Tokenizer(
        backend, TokenizerTraits(Spelling.BYTE_LEVEL, eos_ids=(end,), special_ids=frozenset({end}))
    )
