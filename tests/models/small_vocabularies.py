"""Tokenizers small enough to reason about, as GGUF metadata."""

from __future__ import annotations

from typing import Any

import numpy as np

from forerun.models.text.token_bytes import BYTE_LETTERS

SPECIAL = ["<unk>", "<s>", "</s>"]


def _fields(**values: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value for name, value in values.items()}


def sentencepiece_metadata(**changes: Any) -> dict[str, Any]:
    """Bytes, letters, and a few joined pieces with scores that fix the order of joins."""
    pieces = ["▁", "a", "b", "c", "ab", "bc", "abc", "▁a", "é", "日"]
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    scores = np.zeros(len(tokens), np.float32)
    scores[-len(pieces) :] = -np.arange(len(pieces), dtype=np.float32)
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    values = {
        "model": "llama",
        "tokens": tokens,
        "scores": scores,
        "token_type": np.array(kinds, np.int32),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        **changes,
    }
    return _fields(**values)


def byte_level_metadata(num_padding: int = 0, **changes: Any) -> dict[str, Any]:
    """The 256 bytes as letters, two merges, two control tokens and padding."""
    letters = sorted(BYTE_LETTERS, key=BYTE_LETTERS.__getitem__)
    padding = [f"[PAD{i}]" for i in range(num_padding)]
    tokens = [*letters, "ab", "abc", "<|end|>", "<|turn|>", *padding]
    kinds = [*[1] * 258, 3, 3, *[5] * num_padding]
    values = {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": tokens,
        "token_type": np.array(kinds, np.int32),
        "merges": ["a b", "ab c"],
        "eos_token_id": 258,
        **changes,
    }
    return _fields(**values)
