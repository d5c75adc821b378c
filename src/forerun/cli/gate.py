"""`forerun gate`: may the canary replace the baseline?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.terminal.output import say_json
from forerun.cli.terminal.screen import screen

if TYPE_CHECKING:
    from forerun.bench.records.gate import Check

REFUSED = 1


def gate(
    baseline: Annotated[Path, typer.Argument(help="Bench record of the current setup.")],
    canary: Annotated[Path, typer.Argument(help="Bench record of the setup that may replace it.")],
    baseline_contender: Annotated[
        str,
        typer.Option("--baseline-contender", help="Contender to compare in the baseline record."),
    ] = "plain",
    canary_contender: Annotated[
        str, typer.Option("--canary-contender", help="Contender to compare in the canary record.")
    ] = "default",
    latency: Annotated[
        str,
        typer.Option(
            "--latency",
            help="Inter-token latency: answer (mean within an answer) or wait (single waits).",
        ),
    ] = "answer",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare two bench records, and decide whether the canary may replace the baseline.

    In every class it must have the same tokens, a lower p95 inter-token latency,
    and at least 0.95 × the throughput.

    Exit code 0: promote the canary; 1: hold it back; 2: not comparable.
    """
    from forerun.bench.records.gate import Side, check_rollout
    from forerun.bench.records.record import read_record

    checks = check_rollout(
        Side(str(baseline), read_record(baseline), baseline_contender),
        Side(str(canary), read_record(canary), canary_contender),
        latency,
    )
    is_promoted = all(check.passed for check in checks)
    if as_json:
        found = {"promoted": is_promoted, "checks": [asdict(check) for check in checks]}
        say_json(found, indent=2)
    else:
        _print(checks, is_promoted)
    if not is_promoted:
        raise typer.Exit(REFUSED)


def _print(checks: list[Check], is_promoted: bool) -> None:
    from rich.text import Text

    from forerun.bench.views.sheet import Sheet

    words = {True: Text("pass", "green"), False: Text("fail", "bold red")}
    rows: list[list[str | Text]] = [
        [check.workload, check.what, check.baseline, check.canary, words[check.passed]]
        for check in checks
    ]
    console = screen()
    console.print(Sheet("", ["class", "check"], [["baseline", "canary", ""]], rows))
    failed = sum(not check.passed for check in checks)
    verdict = "promote the canary" if is_promoted else f"hold it back: {failed} checks failed"
    console.print(verdict, style="bold green" if is_promoted else "bold red")
