"""Rotary frequencies, and how they are stretched past the trained context."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from forerun.errors import UnsupportedModel
from forerun.models.config import RopeScaling
from forerun.models.weights.checkpoint import Checkpoint
from forerun.models.weights.layout import ROPE_FACTORS


def rope_frequencies(checkpoint: Checkpoint) -> npt.NDArray[np.float64]:
    """Return radians per position for each pair of lanes: [head_dim / 2]."""
    config = checkpoint.config
    plain = config.rope_theta ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    if checkpoint.has(ROPE_FACTORS):
        return plain / checkpoint.float32(ROPE_FACTORS).astype(np.float64)
    return plain if config.rope_scaling is None else _scaled(plain, config.rope_scaling)


def _scaled(inv_freq: npt.NDArray[np.float64], scaling: RopeScaling) -> npt.NDArray[np.float64]:
    if scaling.kind == "linear":
        return inv_freq / scaling.factor
    if scaling.kind == "llama3":
        return _llama3(inv_freq, scaling)
    raise UnsupportedModel(
        f"rope scaling {scaling.kind!r} is not supported; use a model with linear or llama3."
    )


def _llama3(inv_freq: npt.NDArray[np.float64], scaling: RopeScaling) -> npt.NDArray[np.float64]:
    """Stretch long wavelengths by `factor`, keep short ones, with a ramp between.

    `turns` is how often a frequency turns within the trained context; the ramp runs from
    low_freq_factor turns (fully stretched) to high_freq_factor turns (not stretched).
    """
    turns = scaling.original_max_len * inv_freq / (2 * math.pi)
    width = scaling.high_freq_factor - scaling.low_freq_factor
    share_plain = np.clip((turns - scaling.low_freq_factor) / width, 0, 1)
    return share_plain * inv_freq + (1 - share_plain) * inv_freq / scaling.factor
