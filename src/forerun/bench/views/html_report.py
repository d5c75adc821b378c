"""A record as a self-contained HTML page: no scripts, no fonts, no network."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from forerun.bench.measure.contenders import DEFAULT
from forerun.bench.prompts.workloads import Kind
from forerun.bench.records.record import Record
from forerun.bench.records.summary import labelled, mean_ratio
from forerun.bench.views import charts
from forerun.files import write_whole


def write_report(record: Record, path: Path) -> None:
    write_whole(path, report(record))


def report(record: Record) -> str:
    record = labelled(record)
    page = resources.files("forerun.bench.views") / "report.html"
    return Template(page.read_text(encoding="utf-8")).substitute(
        title=escape(f"{record.model.get('name')} with Forerun"),
        headline=escape(_headline(record)),
        where=escape(_where(record)),
        cards="".join(_cards(record)),
        sections="".join(_sections(record)),
        conditions="".join(_conditions(record)),
    )


def _headline(record: Record) -> str:
    copying, free = mean_ratio(record.cells, Kind.COPY), mean_ratio(record.cells, Kind.FREE)
    if copying and free:
        return (
            f"{copying:.1f}× faster where answers repeat the prompt, {free:.2f}× where they don't"
        )
    any_mean = copying or free
    return f"{any_mean:.2f}× plain decoding" if any_mean else "What was measured"


def _where(record: Record) -> str:
    cores = record.machine.get("num_cores")
    unfinished = "" if record.is_complete else " · interrupted: this is what was measured"
    return (
        f"{record.model.get('name')} · {record.machine.get('cpu')}, {cores} cores · "
        f"{record.created}{unfinished}"
    )


def _cards(record: Record) -> Iterator[str]:
    ours = [cell for cell in record.cells if cell.contender == DEFAULT and cell.ratio]
    bounds = [(c.ratio.low, c.workload) for c in ours if c.ratio]
    figures = [
        (_times(mean_ratio(ours, Kind.COPY)), "copy-heavy classes, geometric mean"),
        (_times(mean_ratio(ours, Kind.FREE)), "free classes, geometric mean"),
    ]
    if bounds:
        low, workload = min(bounds)
        figures.append((_times(low), f"the worst lower bound: {workload}"))
    same = [c.same_tokens for c in ours if c.same_tokens is not None]
    if same:
        figures.append((f"{min(same):.0%}", "of the answers are the very same tokens"))
    for number, text in figures:
        yield f"<div class=card><b>{escape(number)}</b><span>{escape(text)}</span></div>"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def _sections(record: Record) -> Iterator[str]:
    cells = record.cells
    yield _section(
        "Against plain decoding",
        "Each dot is the median ratio over interleaved prompts, the line its 95 % interval. "
        "Right of 1× is faster.",
        charts.ratio_chart(cells),
    )
    yield _section(
        "How far guesses are accepted",
        "Of the rounds that made a first, second, third … guess, the share that accepted it.",
        charts.acceptance_chart(cells, DEFAULT),
    )
    yield _section(
        "Waiting for a token", "Milliseconds a token: p50, out to p99.", charts.latency_chart(cells)
    )
    yield _section(
        "Predicted and measured",
        "E[tokens] / (v(γ) + γc) with the α, c and v of this machine; the band is ±10 %. "
        "Hover for the reason where a dot lies outside.",
        charts.prediction_chart(cells),
    )
    yield _section("Tokens per second", "After the first token.", charts.speed_chart(cells))
    yield _section("Where peers leave our text", "", _divergences(record))


def _section(title: str, text: str, body: str) -> str:
    if not body:
        return ""
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{body}</section>"


def _divergences(record: Record) -> str:
    rows = [
        f"<tr><td>{escape(d.contender)}<td>{escape(d.workload)}<td>{d.at}"
        f"<td><code>{escape(repr(d.ours))}</code><td><code>{escape(repr(d.theirs))}</code>"
        f"<td>{'far' if d.margin is None else format(d.margin, '.3f')}"
        for d in record.divergences
    ]
    head = "<tr><th>peer<th>class<th>at token<th>ours<th>theirs<th>margin (log p)"
    return f"<table>{head}{''.join(rows)}</table>" if rows else ""


def _conditions(record: Record) -> Iterator[str]:
    facts = {
        "model": f"{record.model.get('file')}, SHA-256 {record.model.get('sha256')}",
        "commit": record.commit or "not in git",
        "machine": ", ".join(f"{k} {v}" for k, v in record.machine.items()),
        "versions": ", ".join(f"{k} {v}" for k, v in record.versions.items()),
        "settings": ", ".join(f"{k} {v}" for k, v in record.settings.items()),
    }
    for name, about in record.contenders.items():
        told = [about[key] for key in ("precision", "system_info") if about.get(key)]
        facts |= {name: "; ".join(told)} if told else {}
    for name, found in facts.items():
        yield f"<dt>{escape(name)}<dd>{escape(str(found))}"
