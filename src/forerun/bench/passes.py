"""What one target pass costs, by its number of tokens: v(γ) of this model on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

from forerun.bench.sheet import Sheet
from forerun.models.llama import LlamaModel
from forerun.speculation.calibration import pass_timer

SIZES: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_MIN_ROUNDS: Final = 2  # for quartiles


@dataclass(frozen=True)
class PassReport:
    """Seconds of each pass, by number of tokens."""

    seconds: Mapping[int, Sequence[float]]
    is_complete: bool = True  # False after ^C

    def ratio(self, num_tokens: int) -> float:
        """In plain passes: the median of ratios taken within a round."""
        pairs = zip(self.seconds[num_tokens], self.seconds[1], strict=True)
        return median(longer / one for longer, one in pairs)

    def as_dict(self) -> dict[str, Any]:
        rows = {}
        for size, seconds in self.seconds.items():
            low, middle, high = quantiles(seconds, n=4)
            rows[str(size)] = {"median_s": middle, "quartiles_s": [low, high]}
            rows[str(size)] |= {"ratio": self.ratio(size), "num": len(seconds)}
        return {"is_complete": self.is_complete, "passes": rows}


def measure_passes(
    model: LlamaModel, sizes: Sequence[int] = SIZES, num_rounds: int = 15
) -> PassReport:
    """Every size once per round, so that what disturbs the machine disturbs all of them.

    After ^C, the whole rounds that there are, if they are enough for quartiles.
    """
    measure = pass_timer(model, max(sizes))
    rounds: list[list[float]] = []
    try:
        for _ in range(num_rounds + 1):
            rounds.append([measure(size) for size in sizes])  # noqa: PERF401  kept after ^C
    except KeyboardInterrupt:
        if len(rounds) < _MIN_ROUNDS + 1:
            raise
    counted = rounds[1:]  # the first round warms up
    seconds = {size: [took[idx] for took in counted] for idx, size in enumerate(sizes)}
    return PassReport(seconds, is_complete=len(counted) == num_rounds)


def pass_sheet(report: PassReport) -> Sheet:
    rows = [
        [str(size), f"{median(seconds) * 1e3:.1f}", f"{report.ratio(size):.2f}"]
        for size, seconds in report.seconds.items()
    ]
    return Sheet("one target pass, empty context", [], [["tokens", "ms", "plain passes"]], rows)
