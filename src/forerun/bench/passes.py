"""What one target pass costs, by its number of tokens: v(γ) of this model on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

from rich.table import Table

from forerun.engine.building import pass_timer
from forerun.models.llama import LlamaModel

SIZES: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16)


@dataclass(frozen=True)
class PassReport:
    """Seconds of each pass, by number of tokens."""

    seconds: Mapping[int, Sequence[float]]

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
        return {"passes": rows}


def measure_passes(
    model: LlamaModel, sizes: Sequence[int] = SIZES, num_rounds: int = 15
) -> PassReport:
    """Every size once per round, so that what disturbs the machine disturbs all of them."""
    measure = pass_timer(model, max(sizes))
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for round_idx in range(num_rounds + 1):
        for size in sizes:
            took = measure(size)
            if round_idx:  # the first round warms up
                seconds[size].append(took)
    return PassReport(seconds)


def pass_table(report: PassReport) -> Table:
    table = Table(title="one target pass, empty context", box=None, pad_edge=False)
    for heading in ("tokens", "ms", "of a plain pass"):
        table.add_column(heading, justify="right")
    for size, seconds in report.seconds.items():
        table.add_row(str(size), f"{median(seconds) * 1e3:.1f}", f"{report.ratio(size):.2f}")
    return table
