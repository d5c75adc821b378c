"""The Gumbel noise of one token, and its bounds by leading zero bits."""

from __future__ import annotations

import math

import numpy as np
from numba import float64, njit

from forerun.kernels.cpu.draws.noise_words import first_word, second_word

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_LOG_2 = 0.6931471805599453
SLACK = 1e-9  # more than the difference between two libraries' logarithms
# Bounds of the noise, by the first word's leading zero bits; if all 32 are zero, u ≥ 2^-65.
LEAST = np.array([-3.8, *((zeros - 1) * _LOG_2 - SLACK for zeros in range(1, 33))])
MOST = np.array([*((zeros + 1) * _LOG_2 + SLACK for zeros in range(32)), 45.1])
_BELOW_ONE = 1 - 2.0**-53


@njit(inline="always")
def gumbel_noise(key, position, token):
    """Return `Noise.gumbel`, except for the last bits of its logarithms."""
    high, low = first_word(key, position, token), second_word(key, position, token)
    u = float64(high) * 2.0**-32 + (float64(low) + 0.5) * 2.0**-64
    return -math.log(-math.log1p(-min(u, _BELOW_ONE)))
