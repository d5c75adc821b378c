"""Temperature and truncation on whole rows, without short cuts: their bit-exact specification.

`plain_pipeline` specifies the distribution; this also fixes the order of the float64 roundings.
"""

from __future__ import annotations

import numpy as np

from forerun.sampling import Logits, softmax
from forerun.types import FloatArray, IntArray, SamplingParams


def dense_truncated(raw_logits: FloatArray, params: SamplingParams) -> Logits:
    logits: Logits = raw_logits.astype(np.float64)
    logits -= logits.max()
    logits /= params.temperature
    if params.top_k:
        _keep(logits, np.argsort(-logits, kind="stable")[: params.top_k])
    if params.top_p < 1:
        alive = np.flatnonzero(logits > -np.inf)
        probs = softmax(logits[alive])
        order = np.argsort(-logits[alive], kind="stable")
        num_kept = int(np.searchsorted(np.cumsum(probs[order]), params.top_p)) + 1
        _keep(logits, alive[order[:num_kept]])
    if params.min_p > 0:
        _keep(logits, np.flatnonzero(logits >= np.log(params.min_p)))
    return logits


def _keep(logits: Logits, tokens: IntArray) -> None:
    others = np.ones(len(logits), np.bool_)
    others[tokens] = False
    logits[others] = -np.inf
