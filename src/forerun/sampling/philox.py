"""Philox4x32-10: a random function of (key, counter), without state.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). A counter-based
generator makes a draw a function of *where* it is used, so the same position gives the same
noise whether it is reached by one plain step or inside a verified run of guesses.
"""

from __future__ import annotations

from typing import Any, Final

# 32-bit words: an int, or a uint64 array, in which the product of two words still fits.
Words = Any

_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_MASK: Final = 0xFFFFFFFF
_NUM_ROUNDS: Final = 10


def philox(key: int, counter: tuple[Words, Words, Words, Words]) -> tuple[Words, ...]:
    """Return four words of 32 random bits for a 64-bit key and a counter of four words.

    Counter words broadcast, so a word that all values share may be an int.
    """
    x0, x1, x2, x3 = counter
    k0, k1 = key & _MASK, key >> 32
    for _ in range(_NUM_ROUNDS):
        product0 = x0 * _MULTIPLIERS[0]
        product1 = x2 * _MULTIPLIERS[1]
        x0, x1 = (product1 >> 32) ^ x1 ^ k0, product1 & _MASK
        x2, x3 = (product0 >> 32) ^ x3 ^ k1, product0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return x0, x1, x2, x3
