"""argmax(logit + Gumbel noise), with the noise evaluated only where it can win.

The noise of a token is −log(−log(1 − u)), and u's leading zero bits z bound it:

    2^-(z+1) ≤ u < 2^-z   gives   (z − 1)·log 2 ≤ noise ≤ (z + 1)·log 2      for z ≥ 1

and noise ≥ −3.8 always. So integers decide for all but a handful of tokens, and `sampling` draws
among those: the result is the oracle's, bit for bit.
"""

from __future__ import annotations

import numpy as np
from numba import float64, int64, njit, uint64

from forerun.kernels.cpu.library import Library
from forerun.kernels.cpu.native import doubles, ints, leading_zeros
from forerun.sampling import Noise
from forerun.sampling.transforms import Logits

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_LOG_2 = 0.6931471805599453
_LOWEST = -3.8
_HIGHEST = 45.1  # u is 2^-65 or more
_SLACK = 1e-9  # more than the rounding of the oracle's float64 logarithms
_MASK = uint64(0xFFFFFFFF)
_SHIFT = uint64(32)
_MULTIPLIERS = uint64(0xD2511F53), uint64(0xCD9E8D57)
_WEYL = uint64(0x9E3779B9), uint64(0xBB67AE85)
_NUM_ROUNDS = 10


@njit(inline="always")
def _first_word(key, position, token):
    """Philox4x32-10's first word for counter (position, token, 0, 0), see `sampling.philox`."""
    x0, x1, x2, x3 = position, token, uint64(0), uint64(0)
    k0, k1 = key & _MASK, key >> _SHIFT
    for _ in range(_NUM_ROUNDS):
        product0, product1 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1 = (product1 >> _SHIFT) ^ x1 ^ k0, product1 & _MASK
        x2, x3 = (product0 >> _SHIFT) ^ x3 ^ k1, product0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return x0


def gumbel_candidates(logits, num_tokens, key, position, highest, out):
    """Write the ids of all tokens that may win to `out`, after their number.

    `highest` is room for a float64 per token: the most that its logit and noise can come to.
    """
    values, bounds, ids = doubles(logits), doubles(highest), ints(out)
    best = float64(-np.inf)
    for token in range(num_tokens):
        bounds[token] = values[token]
        if values[token] > -np.inf:
            zeros = leading_zeros(_first_word(uint64(key), uint64(position), uint64(token))) - 32
            lowest = (zeros - 1) * _LOG_2 if zeros > 0 else _LOWEST
            best = max(best, values[token] + lowest)
            most = (zeros + 1) * _LOG_2 if zeros < 32 else _HIGHEST  # the second word decides
            bounds[token] = values[token] + most + _SLACK
    count = int64(0)
    for token in range(num_tokens):
        if bounds[token] >= best and bounds[token] > -np.inf:
            count += 1
            ids[count] = token
    ids[0] = count


class CoupledDraw:
    """The target's own choice on this kernel set."""

    def __init__(self, library: Library) -> None:
        self._candidates = library.function("gumbel_candidates", gumbel_candidates, 6)

    def gumbel_argmax(self, logits: Logits, noise: Noise, position: int) -> int:
        """What `sampling.gumbel_argmax` returns."""
        values = np.ascontiguousarray(logits, np.float64)
        bounds, out = np.empty_like(values), np.empty(len(values) + 1, np.int64)
        key = noise.key - (noise.key >> 63 << 64)  # the same 64 bits, signed
        addresses = (bounds.ctypes.data, out.ctypes.data)
        self._candidates.call(values.ctypes.data, len(values), key, position, *addresses)
        tokens = out[1 : 1 + out[0]]
        if len(tokens) == 1:
            return int(tokens[0])
        noisy = values[tokens] + noise.gumbel(position, tokens)
        return int(tokens[np.argmax(noisy)])  # the lowest id among equals
