"""The cost of one target pass by number of tokens: v(γ) of this model on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median, quantiles
from typing import Any, Final

from forerun.bench.measure.rounds import rounds

SIZES: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_MIN_ROUNDS: Final = 2  # for quartiles


def measure_passes(
    measure: Callable[[int], float], sizes: Sequence[int] = SIZES, num_rounds: int = 15
) -> dict[str, Any]:
    """Time passes of each size; `measure` runs a pass over that many tokens, returning seconds.

    `sizes` begins with 1.
    """
    works = {size: partial(measure, size) for size in sizes}
    seconds = rounds(works, num_rounds, least=_MIN_ROUNDS)
    return {
        "is_complete": len(seconds[1]) == num_rounds,
        "passes": {str(size): _row(times, seconds[1]) for size, times in seconds.items()},
    }


def _row(seconds: Sequence[float], plain: Sequence[float]) -> dict[str, Any]:
    """Return the figures of one size; `ratio` is the median of ratios within a round."""
    low, middle, high = quantiles(seconds, n=4)
    ratio = median(longer / one for longer, one in zip(seconds, plain, strict=True))
    return {"median_s": middle, "quartiles_s": [low, high], "ratio": ratio, "num": len(seconds)}
