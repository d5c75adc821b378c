"""`forerun plan`: what speculation would gain, before anything runs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from forerun.bench.views.sheet import Sheet
from forerun.cli.options.shared import bundle, flags_of, takes
from forerun.cli.terminal.output import say
from forerun.cli.terminal.screen import screen
from forerun.errors import InvalidOption
from forerun.models.known_shapes import read_shape
from forerun.models.memory_budget import WEIGHT_DTYPES, MemoryBudget, ModelMemory, model_memory
from forerun.option_fields import option
from forerun.theory.closed_forms import oracle_speedup
from forerun.theory.depth_table import DepthRow, DepthTable, depth_table
from forerun.theory.verify_cost import FREE, parse_verify_cost

DEFAULT_MAX_DEPTH: Final = 10
GB: Final = 10**9
GIB: Final = 2**30


@dataclass(frozen=True)
class DepthOptions:
    alpha: float | None = option(
        None, "Acceptance rate: the chance that a guess is accepted, 0 to 1."
    )
    cost: float | None = option(
        None, "Cost of one draft step, in plain target passes; 0 for a table lookup."
    )
    verify_cost: str | None = option(
        None,
        "Cost of a target pass over γ guesses, in plain passes: a slope per guess (0.05), measured "
        "values for depth 1, 2, … (1.04,1.10,1.15), or points (3:1.38,7:1.90). Default: 1.",
        metavar="SPEC",
    )
    operations_cost: float | None = option(
        None, "Drafter's arithmetic per token ÷ the target's. Default: as --cost."
    )
    max_depth: int | None = option(
        None,
        f"Maximum depth to show. Default: {DEFAULT_MAX_DEPTH}, at most the deepest measured one.",
    )


@dataclass(frozen=True)
class BudgetOptions:
    budget: tuple[str, str] | None = option(
        None,
        "Show the memory of two models, each a known name (llama-3.2-3b), a config.json or its "
        "folder, or a JSON object with the same keys.",
        metavar="TARGET DRAFT",
    )
    dtype: str = option("bfloat16", f"Data type of weights: {', '.join(WEIGHT_DTYPES)}.")
    draft_dtype: str | None = option(
        None, "Data type of the draft model's weights. Default: as --dtype."
    )
    kv_dtype: str = option("bfloat16", "Data type of both KV caches.")
    sequences: int = option(8, "Concurrent requests.")
    max_len: int = option(4096, "Tokens per request.")


@takes(
    depth_options=bundle(DepthOptions, "Depth"),
    budget_options=bundle(BudgetOptions, "Memory budget"),
)
def plan(
    depth_options: DepthOptions,
    budget_options: BudgetOptions,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw Figures 2, 3 and 4 of the paper to a .png, .pdf or .svg."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Estimate the speedup of each depth and the memory of two models, or draw paper figures."""
    depths, memory = _depths(depth_options), _budget(budget_options)
    if depths is None and memory is None and plot is None:
        raise InvalidOption(
            "nothing to plan; give --alpha with --cost, --budget TARGET DRAFT, or --plot FILE."
        )
    if plot is not None:
        from forerun.theory.figures import save_figures

        save_figures(plot)
    if as_json:
        say(json.dumps(_as_json(depths, memory, plot), indent=2, allow_nan=False))
        return
    if depths is not None:
        _print_depths(depths)
    if depths is not None and memory is not None:
        say("")
    if memory is not None:
        assert budget_options.budget is not None
        _print_budget(memory, budget_options.budget)
    if plot is not None:
        say(f"Figures 2, 3 and 4 are in {plot}.")


def _depths(options: DepthOptions) -> DepthTable | None:
    if options.alpha is None:
        _refuse_strays(options, "--alpha")
        return None
    if options.cost is None:
        raise InvalidOption("--alpha needs --cost; give 0 for a drafter that costs nothing.")
    verify_cost = FREE if options.verify_cost is None else parse_verify_cost(options.verify_cost)
    max_depth = options.max_depth
    if max_depth is None:
        max_depth = min(verify_cost.max_depth, DEFAULT_MAX_DEPTH)
    operations_cost = options.cost if options.operations_cost is None else options.operations_cost
    return depth_table(options.alpha, options.cost, max_depth, verify_cost, operations_cost)


def _budget(options: BudgetOptions) -> MemoryBudget | None:
    if options.budget is None:
        _refuse_strays(options, "--budget")
        return None
    dtypes = options.dtype, options.draft_dtype or options.dtype
    target, draft = (
        model_memory(
            read_shape(shape),
            dtype=dtype,
            kv_dtype=options.kv_dtype,
            num_sequences=options.sequences,
            max_len=options.max_len,
        )
        for shape, dtype in zip(options.budget, dtypes, strict=True)
    )
    return MemoryBudget(target, draft)


def _refuse_strays(options: DepthOptions | BudgetOptions, leader: str) -> None:
    """Reject options that would have no effect without `leader`."""
    for field in fields(options):
        if getattr(options, field.name) != field.default:
            flag = flags_of(field)[0]
            raise InvalidOption(f"{flag} has no effect without {leader}; give both or neither.")


def _as_json(
    depths: DepthTable | None, memory: MemoryBudget | None, plot: Path | None
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if depths is not None:
        found["depths"] = {
            "alpha": depths.alpha,
            "cost": depths.cost,
            "best_depth": depths.best_depth,
            "meaning": depths.meaning(),
            "oracle_speedup": _finite(oracle_speedup(depths.alpha, depths.cost)),
            "rows": [asdict(row) for row in depths.rows],
        }
    if memory is not None:
        found["budget"] = {**asdict(memory), "total_bytes": memory.total_bytes}
    if plot is not None:
        found["figures"] = str(plot)
    return found


def _finite(value: float) -> float | None:
    """Return None for infinity, which JSON lacks: null says that there is no bound."""
    return value if value < float("inf") else None


def _print_depths(depths: DepthTable) -> None:
    """Print one row per depth, with the best one marked, and what they mean."""
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


def _print_budget(budget: MemoryBudget, names: tuple[str, str]) -> None:
    """Print both models side by side, and their sum."""
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
