"""Softmax, and bounds on its denominator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.types import FloatArray

Logits = npt.NDArray[np.float64]
Probs = npt.NDArray[np.float64]
WeightSum = Callable[[FloatArray, float, float], tuple[float, float]]

_SLACK: Final = 1e-9  # relative; more than the rounding error of a float64 sum


def softmax(logits: Logits) -> Probs:
    weights = np.exp(logits - logits.max())
    probs: Probs = weights / weights.sum()
    return probs


def weight_sum(logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
    """Return bounds on Σ e^((logit − top) / temperature) of a row whose largest logit is `top`."""
    with np.errstate(over="ignore"):  # an overflow gives −inf, as it should
        total = float(np.exp((logits.astype(np.float64) - top) / temperature).sum())
    return total * (1 - _SLACK), total * (1 + _SLACK)
