"""The sheet of `forerun bench gpu`: passes and kernels as rows, checks below."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forerun.bench.records.report import Report
from forerun.bench.views.sheet import Sheet

_LEGEND: Final = (
    "ms: a pass on the device, 128 tokens of context; of floor: the time to read the weights once "
    "÷ that; forward: with plan, transfers and logits on the host"
)


def gpu_sheet(report: Report, title: str) -> Sheet:
    """Return a row per shape and pass, then one per kernel of a plain pass."""
    rows = [
        [
            shape["shape"],
            f"{found['num_requests']} × {found['num_tokens']}",
            _ms(found["device_s"]),
            f"{found['share_of_floor']:.0%}",
            _ms(found["forward_s"]),
        ]
        for shape in report["shapes"]
        for found in shape["passes"]
    ]
    rows += [
        [shape["shape"], f"{name} × {found['count']}", _ms(found["seconds"]), "–", "–"]
        for shape in report["shapes"]
        for name, found in shape.get("kernels", {}).items()
    ]
    speed = report["read_bytes_per_second"] / 1e12
    where = f"{title} · {report['gpu']} · memory reads at {speed:.2f} TB/s"
    headings = ["requests × tokens, or kernel", "ms", "of floor", "forward ms"]
    return Sheet(where, ["shape"], [headings], rows, legend=[_LEGEND, *_checks(report)])


def _checks(report: Report) -> Iterator[str]:
    """Yield a line for each check that the record has: older ones have fewer."""
    if numerics := report.get("numerics"):
        far = "" if numerics["is_near"] else "TOO FAR: "
        yield (
            f"numerics: {far}logits are off by {max(numerics['errors']):.2g} of their length at "
            f"most, {numerics['bound']:g} is allowed"
        )
    if shapes := report["shapes"]:
        compared, different = (
            sum(shape[f"num_rows_{what}"] for shape in shapes) for what in ("compared", "different")
        )
        yield f"bits: {_different(different)} of {compared} rows alone and in a batch"
    if answers := report["answers"]:
        yield from _answers(answers)
    if oracle := report["oracle"]:
        yield from _oracle(oracle)
    if starts := report.get("starts"):
        yield from _starts(starts["cold"], starts["warm"])


def _starts(cold: Report, warm: Report) -> Iterator[str]:
    yield (
        f"start: {cold['first_token_s']:.1f} s from the command to the first token without "
        f"compiled kernels, {warm['first_token_s']:.1f} s with them"
    )
    if cold.get("loaded_s") and warm.get("loaded_s"):
        behind = (one["first_token_s"] - one["loaded_s"] for one in (cold, warm))
        yield "of it, with the weights in memory: {:.1f} and {:.1f} s".format(*behind)


def _answers(answers: Report) -> Iterator[str]:
    yield (
        f"answers: {_different(answers['num_different'])} of {answers['num_runs']} with "
        f"speculation; {answers['num_rows_left_to_host'] or 0:,} of "
        f"{answers['num_rows_asked'] or 0:,} draws were left to the host"
    )
    yield (
        f"a token through LLM: {_ms(answers['plain_s'])} ms plain, "
        f"{_ms(answers['batch_round_s'])} ms a round of {answers['num_batch']}; copied text: "
        f"{_ms(answers['default_copy_s'])} ms with speculation, {_ms(answers['plain_copy_s'])} "
        "without"
    )


def _oracle(found: Report) -> Iterator[str]:
    plain, alpha, oracle = found["plain_s"], found["alpha"], found["oracle"]
    took = oracle["round_s"]
    yield (
        f"oracle: {oracle['speedup']:.2f} × plain ({_ms(plain)} ms), α = {alpha:g}, depth "
        f"{oracle['depth']}, a round {_ms(took['median'])} ms [{_ms(took['low'])}, "
        f"{_ms(took['high'])}], {_different(oracle['num_different'])}"
    )
    if draft := found.get("draft"):
        runs = ", ".join(f"{run['speedup']:.2f} at {run['depth']}" for run in draft["runs"])
        different = sum(run["num_different"] for run in draft["runs"])
        yield f"{draft['shape']} drafts, × plain by depth: {runs}, {_different(different)}"


def _different(num: int) -> str:
    return f"{num} DIFFERENT" if num else "0 different"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
