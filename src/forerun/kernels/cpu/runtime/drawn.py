"""Tokens that a pass draws from its logits, and what they are drawn by."""

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

LEFT, NOT_ASKED = -1, -2  # in the place of a token
# Of a row: the bits of its temperature, key and position; the row before it, and the guess that
# must have been drawn there, if any; instead of that row, that the host is to draw; a mask of what
# may come, if not everything may: where it lies, and how many groups of 16 bits it has.
NOISE_FIELDS: Final = 7
KEY, POSITION, BEFORE, GUESS, MASK, NUM_GROUPS = range(1, 7)
NOTHING, BY_HOST = -1, -2  # in the place of the row before
_OF_HOST: Final = (0, 0, 0, BY_HOST, 0, 0, 0)
_NO_MASK: Final[tuple[int, int]] = (0, 0)


class Result(IntEnum):
    """What a pass brings: logits, or of each wanted row the best token, or what its noise and mask
    come to."""

    LOGITS = 0
    BEST = 1
    NOISY = 2


class DrawnRows(NamedTuple):
    """What a pass has drawn, and by what."""

    tokens: IntArray  # [R], once it has run
    noise: IntArray  # [R, NOISE_FIELDS], or none at all

    @property
    def address(self) -> int:
        return address_of(self.tokens)

    def scores(self, logits: npt.NDArray[np.float32]) -> Scores:
        """Tokens, and copies of the logits [R, …, V] of those rows that are left."""
        tokens: list[int] = self.tokens.tolist()
        if not tokens or min(tokens) >= 0:
            return Scores([None] * len(tokens), tokens)
        pairs = list(zip(tokens, logits, strict=True))
        rows = [row.flatten() if token == LEFT else None for token, row in pairs]
        return Scores(rows, [None if token < 0 else token for token in tokens])


def as_bits(temperature: float, key: int) -> tuple[int, int]:
    """A double and a key as signed integers of the same 64 bits."""
    (bits,) = struct.unpack("<q", struct.pack("<d", temperature))
    return bits, key - (key >> 63 << 64)


def noise_ints(
    draws: Sequence[CoupledDraws | None], wanted: Sequence[int]
) -> tuple[list[int], list[Mask]]:
    """Of all their rows, so many each, as the kernels read them, and the masks that must stay alive
    for it; None: the host draws. A row behind a guess is asked for once that guess is drawn."""
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
    """In whole groups, at least one; where it is that already, not a copy."""
    num_bytes = max(2, len(bits) + len(bits) % 2)
    return np.frombuffer(
        bits if len(bits) == num_bytes else bits.ljust(num_bytes, b"\0"), np.uint16
    )


def noise_after(noise: Sequence[int]) -> list[int]:
    """Of the rows behind these, where nobody guesses."""
    found = list(noise)
    for row in range(0, len(found), NOISE_FIELDS):
        found[row + POSITION] += 1
        found[row + BEFORE], found[row + GUESS] = NOTHING, 0
    return found
