"""A table with one row per depth, the best depth, and a sentence about it."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.errors import InvalidOption
from forerun.theory.closed_forms import (
    can_help,
    expected_accepted,
    expected_tokens,
    memory_access_factor,
    operations_factor,
    optimal_depth,
    speedup,
)
from forerun.theory.ranges import check_depth
from forerun.theory.verify_cost import FREE, VerifyCost


@dataclass(frozen=True)
class DepthRow:
    """The figures of one depth; the last three are relative to plain decoding."""

    depth: int
    expected_tokens: float
    expected_accepted: float
    speedup: float
    operations_factor: float
    memory_access_factor: float


@dataclass(frozen=True)
class DepthTable:
    alpha: float
    cost: float
    verify_cost: VerifyCost
    rows: tuple[DepthRow, ...]  # depth 0, 1, 2, …
    best_depth: int

    @property
    def best(self) -> DepthRow:
        return self.rows[self.best_depth]

    def meaning(self) -> str:
        """Return what the table means, in one sentence."""
        if self.best_depth == 0:
            return f"No depth up to {len(self.rows) - 1} helps: {self._why_not()}."
        best = self.best
        name = f"Depth {best.depth}"
        if best.depth == len(self.rows) - 1:
            name += ", the deepest in this table,"
        return (
            f"{name} is best: {best.expected_tokens:.2f} tokens a round, "
            f"{best.speedup:.2f}× as fast as plain decoding, for "
            f"{best.operations_factor:.2f}× the arithmetic."
        )

    def _why_not(self) -> str:
        if can_help(self.alpha, self.cost):
            return "the longer target pass costs more than the accepted guesses give back"
        return (
            f"a guess costs {self.cost:g} of a target pass and is accepted with probability "
            f"{self.alpha:g}, which would have to be larger"
        )


def depth_table(
    alpha: float,
    cost: float,
    max_depth: int,
    verify_cost: VerifyCost = FREE,
    operations_cost: float = 0.0,
) -> DepthTable:
    """Compute the table of depths 0 … `max_depth`."""
    if check_depth(max_depth, "max depth") == 0:
        raise InvalidOption("max depth is 0, which leaves nothing to compare; give 1 or more.")
    rows = tuple(
        DepthRow(
            depth=depth,
            expected_tokens=expected_tokens(alpha, depth),
            expected_accepted=expected_accepted(alpha, depth),
            speedup=speedup(alpha, depth, cost, verify_cost),
            operations_factor=operations_factor(alpha, depth, operations_cost),
            memory_access_factor=memory_access_factor(alpha, depth),
        )
        for depth in range(max_depth + 1)
    )
    best_depth = optimal_depth(alpha, cost, max_depth, verify_cost)
    return DepthTable(alpha, cost, verify_cost, rows, best_depth)
