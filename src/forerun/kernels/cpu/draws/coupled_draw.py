"""argmax(logit + Gumbel noise), with the noise evaluated only for tokens that can win.

The noise of a token is −log(−log(1 − u)), and u's leading zero bits z bound it:

    2^-(z+1) ≤ u < 2^-z   gives   (z − 1)·log 2 ≤ noise ≤ (z + 1)·log 2      for z ≥ 1

and noise ≥ −3.8 always. So integers rule out all but a handful of tokens, and logarithms decide
among those. If sums differ by less than the libraries' rounding, `sampling` decides: so the result
is that of `sampling`, bit for bit.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, uint64

from forerun.kernels.cpu.codegen.compiled import address_of
from forerun.kernels.cpu.codegen.native import doubles, ints, leading_zeros
from forerun.kernels.cpu.draws.gumbel import LEAST, MOST, SLACK, gumbel_noise
from forerun.kernels.cpu.draws.noise_words import RUN_LEN, first_word, word_at, write_words
from forerun.kernels.cpu.library import Library
from forerun.sampling import Logits, Noise

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_LEAST_FLOAT = float(np.finfo(np.float64).min)
_FEW = 32  # up to so many tokens of a run, computing their words one by one is cheaper


@njit(inline="always")
def _num_alive(values, first, last):
    count = int64(0)
    for token in range(first, last):
        count += int64(values[token] > -np.inf)
    return count


@njit(inline="always")
def _still(values, ids, count, best, key, position):
    """Keep the candidates (`count` ids) that may win by their noise; return their number."""
    for idx in range(1, count + 1):
        token = ids[idx]
        best = max(best, values[token] + (gumbel_noise(key, position, token) - SLACK))
    kept = int64(0)
    for idx in range(1, count + 1):
        token = ids[idx]
        if values[token] + (gumbel_noise(key, position, token) + SLACK) >= best:
            kept += 1
            ids[kept] = token
    return kept


@njit(inline="always")
def _noted(values, ids, count, best, token, word):
    """Add a token to `ids` if its first random word lets it win; return (count, best) so far."""
    zeros = leading_zeros(uint64(word)) - 32
    if values[token] + MOST[zeros] >= best:
        count += 1
        ids[count] = token
        best = max(best, values[token] + LEAST[zeros])
    return count, best


def gumbel_candidates(logits, num_tokens, key, position, words, out):
    """Write the number of tokens that may win to `out`, nearly always one, then their ids.

    `words` is room for RUN_LEN random words.
    """
    values, ids = doubles(logits), ints(out)
    best, count = _LEAST_FLOAT, int64(0)  # excluded tokens, at -inf, stay below `best`
    for first in range(0, num_tokens, RUN_LEN):
        last = min(first + RUN_LEN, num_tokens)
        num_alive = _num_alive(values, first, last)
        if num_alive > _FEW:
            write_words(key, position, first, words)
            for token in range(first, last):
                word = word_at(words, token - first)
                count, best = _noted(values, ids, count, best, token, word)
        elif num_alive > 0:
            for token in range(first, last):
                if values[token] > -np.inf:
                    word = first_word(key, position, token)
                    count, best = _noted(values, ids, count, best, token, word)
    ids[0] = _still(values, ids, count, best, key, position) if count > 1 else count


class CoupledDraw:
    """The coupled draw of one row on the host."""

    def __init__(self, library: Library) -> None:
        self._candidates = library.function("gumbel_candidates", gumbel_candidates, 6)

    def gumbel_argmax(self, logits: Logits, noise: Noise, position: int) -> int:
        """Return what `sampling.gumbel_argmax` does."""
        assert 0 <= position < 1 << 32, position  # a counter word
        values = np.ascontiguousarray(logits, np.float64)
        words, out = np.empty(RUN_LEN, np.uint32), np.empty(len(values) + 1, np.int64)
        key = noise.key - (noise.key >> 63 << 64)  # the same 64 bits, signed
        addresses = (address_of(words), address_of(out))
        self._candidates.call(address_of(values), len(values), key, position, *addresses)
        tokens = out[1 : 1 + out[0]]
        if len(tokens) == 1:
            return int(tokens[0])
        noisy = values[tokens] + noise.gumbel(position, tokens)
        return int(tokens[np.argmax(noisy)])  # the lowest id among equals
