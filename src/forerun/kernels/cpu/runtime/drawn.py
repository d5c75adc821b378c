"""The tokens that a pass draws from its logits, and the integers that tell how to draw them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.kernels.cpu.codegen.compiled import address_of
from forerun.kernels.scores import Scores
from forerun.sampling import CoupledDraws
from forerun.types import ROOT, IntArray

Mask = npt.NDArray[np.uint16]

LEFT, NOT_ASKED = -1, -2  # instead of a token: left to the host; after a guess not accepted
# The fields of a row: the bits of its temperature; its noise's key and position; the row before it
# (BEFORE), and the guess that must have been drawn there; the address of the mask of allowed tokens
# and its number of groups of 16 bits, or zeros without a mask.
NOISE_FIELDS: Final = 7
KEY, POSITION, BEFORE, GUESS, MASK, NUM_GROUPS = range(1, 7)
NOTHING, BY_HOST = -1, -2  # as BEFORE: no row before it; the host draws this row
_OF_HOST: Final = (0, 0, 0, BY_HOST, 0, 0, 0)
_NO_MASK: Final[tuple[int, int]] = (0, 0)


class Result(IntEnum):
    """What a pass returns: logits, or for each wanted row the token with the largest logit, or the
    token drawn with noise and a mask."""

    LOGITS = 0
    BEST = 1
    NOISY = 2


class DrawnRows(NamedTuple):
    """The tokens that a pass draws, and the integers it draws them by."""

    tokens: IntArray  # [R], set when the pass has run
    noise: IntArray  # [R · NOISE_FIELDS], or empty

    @property
    def address(self) -> int:
        return address_of(self.tokens)

    def scores(self, logits: npt.NDArray[np.float32]) -> Scores:
        """Return the tokens, and copies of the rows of logits [R, …, V] that the host must draw."""
        tokens: list[int] = self.tokens.tolist()
        if not tokens or min(tokens) >= 0:
            return Scores([None] * len(tokens), tokens)
        pairs = list(zip(tokens, logits, strict=True))
        rows = [row.flatten() if token == LEFT else None for token, row in pairs]
        return Scores(rows, [None if token < 0 else token for token in tokens])


def as_bits(temperature: float, key: int) -> tuple[int, int]:
    """Return the temperature (a double) and the key as signed integers with the same 64 bits."""
    (bits,) = struct.unpack("<q", struct.pack("<d", temperature))
    return bits, key - (key >> 63 << 64)


def noise_ints(
    draws: Sequence[CoupledDraws | None], wanted: Sequence[int]
) -> tuple[list[int], list[Mask]]:
    """Return the fields of all rows, as compiled code reads them, and the masks to keep alive.

    `wanted` is the number of rows of each draw; without draws (None) the host draws those rows. A
    row after a guess is drawn only if the row before it drew that guess, or is left to the host.
    """
    found, masks = list[int](), list[Mask]()
    for one, num in zip(draws, wanted, strict=True):
        if one is None:
            found += _OF_HOST * num
            continue
        first_row = len(found) // NOISE_FIELDS
        temperature, key = as_bits(one.params.temperature, one.noise.key)
        allowed = one.allowed() if one.changes_logits else repeat(None, len(one))
        for node, position, bits in zip(one.nodes, one.positions, allowed, strict=True):
            before, guess = NOTHING, 0
            if node != ROOT and one.some_nodes is None:
                before = first_row + 1 + one.proposal.tree.parents[node]
                guess = one.proposal.tokens[node]
            mask = _NO_MASK
            if bits is not None:
                masks.append(_padded(bits))
                mask = (address_of(masks[-1]), len(masks[-1]))
            found += (temperature, key, position, before, guess, *mask)
    assert len(found) == NOISE_FIELDS * sum(wanted), (draws, wanted)
    return found, masks


def _padded(bits: bytes) -> Mask:
    """Pad a mask to whole groups, at least one; without a copy if it is so already."""
    num_bytes = max(2, len(bits) + len(bits) % 2)
    return np.frombuffer(
        bits if len(bits) == num_bytes else bits.ljust(num_bytes, b"\0"), np.uint16
    )


def noise_after(noise: Sequence[int]) -> list[int]:
    """Return the fields of the rows after these, in a pass without guesses."""
    found = list(noise)
    for row in range(0, len(found), NOISE_FIELDS):
        found[row + POSITION] += 1
        found[row + BEFORE], found[row + GUESS] = NOTHING, 0
    return found
