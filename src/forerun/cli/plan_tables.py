"""The tables that `forerun plan` prints."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from forerun.bench.views.sheet import Sheet
from forerun.cli.terminal.screen import screen
from forerun.models.memory_budget import MemoryBudget, ModelMemory
from forerun.theory.closed_forms import oracle_speedup
from forerun.theory.depth_table import DepthRow, DepthTable
from forerun.theory.verify_cost import FREE

GB: Final = 10**9
GIB: Final = 2**30


def print_depths(depths: DepthTable) -> None:
    """One line per depth, the best one marked, and the sentence."""
    headings = ["tokens", "accepted", "speedup", "operations", "target reads", ""]
    rows = [_depth_row(row, is_best=row.depth == depths.best_depth) for row in depths.rows]
    console = screen()
    console.print(Sheet("", ["depth"], [headings], rows, [""]), "", depths.meaning(), sep="\n")
    if depths.best_depth and depths.verify_cost == FREE:
        bound = oracle_speedup(depths.alpha, depths.cost)
        text = f"Choosing the depth round by round could reach {bound:.2f}× at the very most."
        console.print(text, style="dim")


def _depth_row(row: DepthRow, *, is_best: bool) -> list[str | Text]:
    cells = [
        str(row.depth),
        f"{row.expected_tokens:.2f}",
        f"{row.expected_accepted:.2f}",
        f"{row.speedup:.2f}×",
        f"{row.operations_factor:.2f}×",
        f"{row.memory_access_factor:.2f}×",
        "◀ best" if is_best else "",
    ]
    return [Text(cell, "bold green" if is_best else "") for cell in cells]


def print_budget(budget: MemoryBudget, names: tuple[str, str]) -> None:
    """Both models side by side, and the sum."""
    titles = ("parameters", "weights", "KV per token", "KV per request", "KV in all", "together")
    rows = [*zip(titles, _cells(budget.target), _cells(budget.draft), strict=True)]
    roles = [_label(role, name) for role, name in zip(("target", "draft"), names, strict=True)]
    screen().print(
        Sheet("", [""], [roles], rows),
        "",
        f"Both take {_size(budget.total_bytes)}, before activations; the draft model adds "
        f"{budget.draft.total_bytes / budget.target.total_bytes:.0%} to the target alone.",
        sep="\n",
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
