"""What one target pass costs, by its number of tokens: v(γ) of this model on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any, Final

SIZES: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_MIN_ROUNDS: Final = 2  # for quartiles


def measure_passes(
    measure: Callable[[int], float], sizes: Sequence[int] = SIZES, num_rounds: int = 15
) -> dict[str, Any]:
    """`measure` runs one pass over so many tokens and says how many seconds it took.

    `sizes` begin with 1. Every size has its turn in each round, so that what disturbs the machine
    disturbs all of them.

    After ^C, the whole rounds that there are, if they are enough for quartiles.
    """
    rounds: list[list[float]] = []
    try:
        for _ in range(num_rounds + 1):
            rounds.append([measure(size) for size in sizes])  # noqa: PERF401  kept after ^C
    except KeyboardInterrupt:
        if len(rounds) < _MIN_ROUNDS + 1:
            raise
    counted = rounds[1:]  # the first round warms up
    rows = {
        str(size): _row([took[idx] for took in counted], [took[0] for took in counted])
        for idx, size in enumerate(sizes)
    }
    return {"is_complete": len(counted) == num_rounds, "passes": rows}


def _row(seconds: Sequence[float], plain: Sequence[float]) -> dict[str, Any]:
    """`ratio` is the median of ratios taken within a round."""
    low, middle, high = quantiles(seconds, n=4)
    ratio = median(longer / one for longer, one in zip(seconds, plain, strict=True))
    return {"median_s": middle, "quartiles_s": [low, high], "ratio": ratio, "num": len(seconds)}
