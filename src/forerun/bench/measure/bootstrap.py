"""Bootstrap intervals for medians, without assuming a distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypedDict

import numpy as np

_RESAMPLES: Final = 2000
_EDGES: Final = (2.5, 97.5)


@dataclass(frozen=True)
class Interval:
    """A median and its 95 % confidence interval, from `num` values."""

    median: float
    low: float
    high: float
    num: int


def median_interval(values: Sequence[float], seed: int) -> Interval | None:
    """Return the percentile bootstrap of the median; None without values."""
    if not values:
        return None
    sample = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng([seed, len(sample)])
    drawn = rng.integers(0, len(sample), size=(_RESAMPLES, len(sample)))
    low, high = np.percentile(np.median(sample[drawn], axis=1), _EDGES)
    return Interval(float(np.median(sample)), float(low), float(high), len(sample))


def interval_record(values: Sequence[float], seed: int) -> dict[str, Any] | None:
    """Return the interval of the median, as in records."""
    found = median_interval(values, seed)
    return None if found is None else asdict(found)


def geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


class Quantiles(TypedDict):
    p50: float
    p95: float
    p99: float


def quantiles_ms(seconds: Sequence[float]) -> Quantiles | None:
    """Return the quantiles in milliseconds; None without values."""
    if not seconds:
        return None
    p50, p95, p99 = np.percentile(np.asarray(seconds) * 1000, (50, 95, 99)).tolist()
    return Quantiles(p50=p50, p95=p95, p99=p99)
