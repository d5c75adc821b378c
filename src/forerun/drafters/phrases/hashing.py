"""Hashes of the last tokens of a text, one for each context length of a book."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

ORDER: Final = 4  # tokens of the longest context
NUM_MARK_BITS: Final = 12  # bits that tell the contexts of a bucket apart
_MARK_AT: Final = 20
_ODD: Final = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio
_MASK: Final = (1 << 64) - 1
_SHIFT: Final = 29


def context_hashes(tokens: Sequence[int]) -> list[int]:
    """Return the hashes of the last token, of the last two, … and of the last `ORDER`."""
    hashes, found = [], 0
    for token in tokens[: -ORDER - 1 : -1]:
        found = (found + token + 1) * _ODD & _MASK
        found ^= found >> _SHIFT
        hashes.append(found)
    return hashes


def many_hashes(tokens: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], order: int) -> U64:
    """Return the hash of the `order` tokens before each of `ends`."""
    found = np.zeros(len(ends), np.uint64)
    for back in range(1, order + 1):
        found = (found + tokens[ends - back].astype(np.uint64) + np.uint64(1)) * np.uint64(_ODD)
        found ^= found >> np.uint64(_SHIFT)
    return found


def mark(found: int) -> int:
    return found >> _MARK_AT & (1 << NUM_MARK_BITS) - 1


def many_marks(found: U64) -> npt.NDArray[np.uint16]:
    marks = found >> np.uint64(_MARK_AT) & np.uint64((1 << NUM_MARK_BITS) - 1)
    return marks.astype(np.uint16)
