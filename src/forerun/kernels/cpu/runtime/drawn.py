"""Tokens that a pass draws from its logits, and what they are drawn by."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.kernels.scores import Scores
from forerun.sampling import CoupledDraws
from forerun.types import ROOT, IntArray

LEFT, NOT_ASKED = -1, -2  # in the place of a token
# Of a row: the bits of its temperature, key and position; the row before it, and the guess that
# must have been drawn there, if any.
NOISE_FIELDS: Final = 5
KEY, POSITION, BEFORE, GUESS = range(1, 5)


class Result(IntEnum):
    """What a pass brings: logits, or of each wanted row the best token, or one drawn with noise."""

    LOGITS = 0
    BEST = 1
    NOISY = 2


class DrawnRows(NamedTuple):
    """What a pass has drawn, and by what."""

    tokens: IntArray  # [R], once it has run
    noise: IntArray  # [R, NOISE_FIELDS], or none at all

    def scores(self, logits: npt.NDArray[np.float32]) -> Scores:
        """Tokens, and copies of the logits [R, V] of those rows that are left."""
        tokens: list[int] = self.tokens.tolist()
        if min(tokens, default=0) >= 0:
            return Scores([None] * len(tokens), tokens)
        pairs = list(zip(tokens, logits, strict=True))
        rows = [row.copy() if token == LEFT else None for token, row in pairs]
        return Scores(rows, [None if token < 0 else token for token in tokens])


def noise_ints(draws: CoupledDraws, first_row: int) -> list[int]:
    """As the kernels read them, of rows from `first_row` of a pass on. A row behind a guess is
    asked for once that guess is drawn."""
    params, proposal, key = draws.params, draws.proposal, draws.noise.key
    (bits,) = struct.unpack("<q", struct.pack("<d", params.temperature))
    key -= key >> 63 << 64  # the same 64 bits, signed
    found: list[int] = []
    for node, position in zip(draws.nodes, draws.positions, strict=True):
        before, guess = -1, 0
        if node != ROOT and draws.some_nodes is None:
            before, guess = first_row + 1 + proposal.tree.parents[node], proposal.tokens[node]
        found += (bits, key, position, before, guess)
    return found
