"""The sheets of `forerun bench serve` and `make openai-suite`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from forerun.bench.records.report import Report
from forerun.bench.views.sheet import Sheet

# (part, figure, its label, its aim)
_FIGURES: Final = (
    ("together", "whole_ratio", "at once, HTTP ÷ LLM.generate", "≥ 0.95"),
    ("together", "streamed_ratio", "at once, streamed ÷ LLM.generate", "≥ 0.95"),
    ("alone", "added_ms_per_chunk", "HTTP adds to a chunk, ms", "< 2"),
    ("alone", "added_ms_to_the_first", "HTTP adds to the first, ms", ""),
    ("alone", "server_cpu_ms_per_chunk", "server's own thread, ms a chunk", "< 2"),
    ("prediction", "changed_ratio", "prediction, a tenth changed: × sooner", "≥ 2 x86, 1.4 ARM"),
    ("prediction", "changed_passes_ratio", "  target passes ÷", ""),
    ("prediction", "changed_plain_ratio", "  and than plain decoding: × sooner", ""),
    ("prediction", "wrong_ratio", "prediction, all wrong: × sooner", "low ≥ 0.95"),
    ("prediction", "wrong_passes_ratio", "  target passes ÷", ""),
)


def serve_sheet(report: Report, title: str) -> Sheet:
    """Return a row per comparison, then a line per server under load."""
    rows = [
        [words, asked, *_spread(report[part].get(name))]
        for part, name, words, asked in _FIGURES
        if report.get(part) is not None
    ]
    headings = ["asked", "median", "low", "high", "num"]
    return Sheet(title, ["what"], [headings], rows, left=["asked"], legend=list(_legend(report)))


def _spread(found: Mapping[str, float] | None) -> list[str]:
    if found is None:
        return ["–"] * 4
    return [*(f"{found[name]:.2f}" for name in ("median", "low", "high")), f"{found['num']:.0f}"]


def _legend(report: Report) -> Iterator[str]:
    compared = [report[part] for part in ("together", "prediction") if report.get(part)]
    if compared:
        same = all(part["same_text"] for part in compared)
        yield "every text the same" if same else "NOT every text the same"
    for name, figures in report.get("servers", {}).items():
        yield _load_line(name, figures)


def _load_line(name: str, figures: Mapping[str, Any]) -> str:
    def seconds(name: str) -> str:
        values = (figures[name][q] for q in ("p50", "p95"))
        return " / ".join("–" if v is None else f"{v:.3f}" for v in values)

    per_second = figures["requests_per_second"]
    build = f" ({figures['build']['build']})" if figures.get("build") else ""
    return (
        f"{name}{build}: {figures['num_requests']} requests, {figures['num_errors']} errors, "
        f"{'–' if per_second is None else f'{per_second:.2f}'} requests/s, "
        f"{figures['tokens_per_second'] or 0:.1f} tokens/s, "
        f"first token p50/p95 {seconds('first_token_s')} s, last {seconds('last_token_s')} s"
    )


def openai_sheet(report: Report, title: str) -> Sheet:
    """Return a row per reason to fail."""
    rows = [[str(num), reason] for reason, num in report["failures"].items()]
    rows += [["1", f"UNEXPLAINED: {said}"] for said in report["unexplained"].values()]
    passed = (
        f"{report['num_passed']} of {report['num_tests']} tests pass, "
        f"{report['num_passed_without_a_server']} of them in the client alone"
    )
    return Sheet(title, ["fail"], [["why"]], rows, left=["why"], legend=[passed])
