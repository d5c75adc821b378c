"""The tables that `forerun plan` prints."""

from __future__ import annotations

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from forerun.cli.terminal.screen import screen
from forerun.models.memory_budget import MemoryBudget, ModelMemory
from forerun.theory.closed_forms import oracle_speedup
from forerun.theory.depth_table import DepthTable
from forerun.theory.verify_cost import FREE

GB: Final = 10**9
GIB: Final = 2**30


def print_depths(depths: DepthTable) -> None:
    """One line per depth, the best one marked, and the sentence."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("depth", "tokens", "accepted", "speedup", "operations", "target reads", ""):
        table.add_column(title, justify="right" if title else "left")
    for row in depths.rows:
        is_best = row.depth == depths.best_depth
        table.add_row(
            str(row.depth),
            f"{row.expected_tokens:.2f}",
            f"{row.expected_accepted:.2f}",
            f"{row.speedup:.2f}×",
            f"{row.operations_factor:.2f}×",
            f"{row.memory_access_factor:.2f}×",
            "◀ best" if is_best else "",
            style="bold green" if is_best else "",
        )
    console = screen()
    console.print(table)
    console.print(depths.meaning())
    if depths.best_depth and depths.verify_cost == FREE:
        bound = oracle_speedup(depths.alpha, depths.cost)
        console.print(
            f"Choosing the depth round by round could reach {bound:.2f}× at the very most.",
            style="dim",
            highlight=False,
        )


def print_budget(budget: MemoryBudget, names: tuple[str, str]) -> None:
    """Both models side by side, and the sum."""
    table = Table("", box=SIMPLE_HEAD, pad_edge=False)
    for role, name in zip(("target", "draft"), names, strict=True):
        table.add_column(_label(role, name), justify="right", overflow="fold")
    for title, *cells in zip(
        ("parameters", "weights", "KV per token", "KV per request", "KV in all", "together"),
        *map(_cells, (budget.target, budget.draft)),
        strict=True,
    ):
        table.add_row(title, *cells, style="bold" if title == "together" else "")
    console = screen()
    console.print(table)
    console.print(
        f"Both take {_size(budget.total_bytes)}, before activations; the draft model adds "
        f"{budget.draft.total_bytes / budget.target.total_bytes:.0%} to the target alone.",
    )


def _cells(memory: ModelMemory) -> tuple[str, ...]:
    return (
        f"{memory.num_params:,}",
        _size(memory.weight_bytes),
        f"{memory.kv_bytes_per_token:,} B",
        _size(memory.kv_bytes_per_sequence),
        _size(memory.kv_bytes),
        _size(memory.total_bytes),
    )


def _label(role: str, name: str) -> str:
    return role if name.lstrip().startswith("{") else f"{role}: {name}"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / GB:.2f} GB ({num_bytes / GIB:.2f} GiB)"
