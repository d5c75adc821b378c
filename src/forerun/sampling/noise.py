"""All randomness of the package.

    key      64 bits, a hash of (seed, choice): choice 0 of n = 5 is what n = 1 gives
    counter  (position, token, stream)   for the target's Gumbel noise
             (round, draw, stream)       for the uniforms of rejection sampling

No value is ever used for two purposes: streams separate the purposes, and within a stream the
counter never repeats for a request.
"""

from __future__ import annotations

import hashlib
import secrets
from enum import IntEnum
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from forerun.sampling.philox import Words, philox
from forerun.types import IntArray

_BELOW_ONE: Final = 1 - 2.0**-53  # the largest float64 under 1


class Stream(IntEnum):
    """What a random value is used for."""

    TARGET = 0  # the target's own choice; drafters may use the same noise, to agree more often
    DRAFT = 1  # a drafter's draw from q
    TEST = 2  # accept or not
    FINAL = 3  # the residual or bonus token


class GumbelNoise(Protocol):
    """The noise that decides the target's choice, shared with drafters."""

    def gumbel(self, position: int, tokens: IntArray) -> npt.NDArray[np.float64]: ...


class UniformNoise(Protocol):
    """The uniforms of rejection sampling."""

    def uniform(self, stream: Stream, round_idx: int, draw_idx: int) -> float: ...


class Noise:
    """Both kinds of noise for one answer (`choice`) of one request."""

    def __init__(self, seed: int, choice: int = 0) -> None:
        self.key: Final = derive_key(seed, choice)

    def gumbel(self, position: int, tokens: IntArray) -> npt.NDArray[np.float64]:
        """Return standard Gumbel noise for `tokens` at an absolute position; always finite."""
        words = philox(self.key, (position, tokens.astype(np.uint64), Stream.TARGET, 0))
        return gumbel_from_words(words[0], words[1])

    def uniform(self, stream: Stream, round_idx: int, draw_idx: int) -> float:
        """Return a uniform in [0, 1) for one purpose and one draw of a round."""
        words = philox(self.key, (round_idx, draw_idx, stream, 0))
        return float(uniform_from_words(words[0], words[1]))


def uniform_from_words(high: Words, low: Words) -> Any:
    """Return uniforms in [0, 1), in steps of 2^-53, so that every value is exact."""
    return ((high << 21) | (low >> 11)) * 2.0**-53


def gumbel_from_words(high: Words, low: Words) -> npt.NDArray[np.float64]:
    """Return −log(E) with E = −log(1 − u) exponential.

    Large noise, which decides the argmax, comes from small u. There the sum below keeps 64 bits of
    the words, so even a token of probability 10^-15 is chosen as often as it should be.
    """
    u = high * 2.0**-32 + (low + 0.5) * 2.0**-64
    exponential = -np.log1p(-np.minimum(u, _BELOW_ONE))
    noise: npt.NDArray[np.float64] = -np.log(exponential)
    return noise


def derive_key(seed: int, choice: int = 0) -> int:
    """Return a request's key. It is a hash, so neighbouring seeds and choices share nothing."""
    packed = (seed % 2**64).to_bytes(8, "little") + choice.to_bytes(8, "little")
    digest = hashlib.blake2b(packed, digest_size=8, person=b"forerun.noise").digest()
    return int.from_bytes(digest, "little")


def fresh_seed() -> int:
    """Return a seed for a request that has none. It has 53 bits, so that programs whose only
    numbers are floats can send it back."""
    return secrets.randbits(53)
