"""Array types, and the check that an array is a distribution."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidDistribution

FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.int64]

# How far a distribution's sum may be from 1: float32 softmax over 10^5 tokens stays well inside.
SUM_TOLERANCE: Final = 1e-5


def check_probs(probs: FloatArray, name: str = "p") -> None:
    """Raise unless `probs` [V] is a distribution."""
    if probs.ndim != 1 or probs.size == 0:
        raise InvalidDistribution(f"{name} has shape {probs.shape}; give one row of probabilities.")
    lowest, total = float(probs.min()), float(probs.sum())  # NaN propagates through both
    if not lowest >= 0:
        raise InvalidDistribution(f"{name} holds {lowest}; probabilities are 0 or more.")
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise InvalidDistribution(f"{name} sums to {total:.9g}; normalise it to 1.")
