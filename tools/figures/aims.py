"""Check bench/aims.toml against the committed records: python tools/figures/aims.py [--strict]

Each aim is PASS, FAIL, or OPEN: passed with fewer pairs than required, or the figure or its record
does not exist yet. With --strict, the exit code is 1 if one fails.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import gpu_figures
from forerun.bench.measure.contenders import DEFAULT
from forerun.bench.prompts.workloads import KINDS, Kind
from forerun.bench.records import summary
from forerun.bench.records.cells import Cell
from forerun.bench.records.record import Record
from forerun.bench.records.report import read_any

BENCH: Final = Path(__file__).parents[2] / "bench"
_ENOUGH: Final = 20
_PEER: Final = "llamacpp"

Aim = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    value: float
    cells: Sequence[Cell] = ()  # from which it was computed
    note: str = ""

    @property
    def num_pairs(self) -> int | None:
        return min((cell.num_pairs for cell in self.cells), default=None)


@dataclass(frozen=True)
class Verdict:
    """The result for an aim; `found` is a figure, or why there is none."""

    word: str
    aim: Aim
    found: str
    details: Sequence[str] = ()

    @property
    def wanted(self) -> str:
        sign, bound = ("≥", "at_least") if "at_least" in self.aim else ("≤", "at_most")
        return f"{sign} {_short(self.aim[bound])}"

    @property
    def is_measured(self) -> bool:
        return len(self.details) > 0

    def __str__(self) -> str:
        more = f" ({', '.join(self.details)})" if self.details else ""
        text = f"{self.aim['on']}: {self.aim['what']} {self.wanted}: {self.found}{more}"
        return f"{self.word}  {text}"


class NotThere(Exception):
    """The record lacks the figure: it is older, or was made without what the figure needs."""


def judge(aim: Aim, records: Path) -> Verdict:
    path = records / aim["record"]
    if not path.exists():
        return Verdict("OPEN", aim, f"there is no {aim['record']}")
    try:
        found = _figure(aim, path)
    except NotThere:
        return Verdict("OPEN", aim, f"not in {aim['record']}")
    is_reached = (
        found.value >= aim["at_least"] if "at_least" in aim else found.value <= aim["at_most"]
    )
    pairs = found.num_pairs
    is_open = pairs is not None and pairs < aim.get("pairs", _ENOUGH)
    word = "FAIL" if not is_reached else "OPEN" if is_open else "PASS"
    details = [found.note, "" if pairs is None else f"{pairs} pairs", aim["record"]]
    return Verdict(word, aim, _short(found.value), list(filter(None, details)))


def _figure(aim: Aim, path: Path) -> Found:
    record = read_any(path)
    if isinstance(record, Record):
        found = _FIGURES[aim["figure"]](record.cells, aim)
        return replace(found, note=", ".join(filter(None, [found.note, *_builds(record, found)])))
    if (figure := gpu_figures.FIGURES.get(aim["figure"])) is not None:
        try:
            return Found(figure(record, aim))
        except (KeyError, TypeError, StopIteration):  # a part is null, or a shape is missing
            raise NotThere from None
    if aim["figure"] == "python_share":
        return Found(record["parts"]["Python"]["seconds"] / record["token_s"])
    worst = min if "at_least" in aim else max
    value = worst(_places(record, *aim["figure"].split(".")))
    servers = record.get("offline", {}).get("servers", {}).items()
    builds = [summary.peer_label(name, about) for name, about in servers if name in aim["figure"]]
    return Found(value, note=", ".join(builds))


def _places(record: Any, *keys: str) -> list[float]:
    """Return the values at a path of keys, in which * matches every key."""
    if not keys:
        return [float(record)]
    if not isinstance(record, Mapping) or (keys[0] != "*" and keys[0] not in record):
        raise NotThere
    here = list(record) if keys[0] == "*" else [keys[0]]
    return [value for key in here for value in _places(record[key], *keys[1:])]


def _builds(record: Record, found: Found) -> list[str]:
    """Return the builds of the peers that the figure compares with."""
    peers = {summary.peer_of(cell): cell.contender for cell in found.cells}
    return [
        summary.peer_label(peer, record.contenders[name])
        for peer, name in peers.items()
        if peer is not None
    ]


def _num_differing(cells: Sequence[Cell], _aim: Aim) -> Found:
    return Found(len(summary.differing_cells(cells)))


def _lowest_bound(cells: Sequence[Cell], aim: Aim) -> Found:
    ours = [(c.ratio.low, c.workload) for c in cells if c.contender == DEFAULT and c.ratio]
    assert len(ours) >= aim["num_classes"], f"{aim['record']} has {len(ours)} classes"
    low, workload = min(ours)
    return Found(low, [c for c in cells if c.contender == DEFAULT], f"in {workload}")


def _mean_ratio(cells: Sequence[Cell], aim: Aim) -> Found:
    mean = summary.mean_ratio(cells, Kind(aim["kind"]))
    assert mean is not None, aim
    ours = [c for c in cells if c.contender == DEFAULT and c.kind == aim["kind"]]
    wanted = {name for name, kind in KINDS.items() if kind == aim["kind"]}
    assert {cell.workload for cell in ours} == wanted, f"{aim['record']} lacks some of {wanted}"
    return Found(mean, ours)


def _class_ratio(cells: Sequence[Cell], aim: Aim) -> Found:
    (ours,) = [c for c in cells if (c.workload, c.contender) == (aim["class"], DEFAULT)]
    assert ours.ratio is not None, aim
    return Found(ours.ratio.median, [ours])


def _over_best_mode(cells: Sequence[Cell], aim: Aim) -> Found:
    found = summary.over_best_mode(cells, aim.get("peer", _PEER), aim["classes"])
    assert found is not None, aim
    missing = set(aim["classes"]) - {cell.workload for cell in found.cells}
    assert not missing, f"{aim['record']} has no {missing}"
    return Found(found.ratio, found.cells, ", ".join(found.modes))


def _plain_over_peer(cells: Sequence[Cell], aim: Aim) -> Found:
    return _worst(cells, aim, lambda cell: cell.ratio)


def _first_token_over_peer(cells: Sequence[Cell], aim: Aim) -> Found:
    return _worst(cells, aim, lambda cell: cell.ratio_ttft)


def _worst(cells: Sequence[Cell], aim: Aim, ratio: Callable[[Cell], Any]) -> Found:
    """Compare our plain decoding with the peer's plain mode, in the class where ours is worst."""
    theirs = [c for c in cells if c.contender == f"{aim.get('peer', _PEER)}/plain" and ratio(c)]
    value, workload = min((1 / ratio(cell).median, cell.workload) for cell in theirs)
    return Found(value, theirs, f"in {workload}")


def _prediction_error(cells: Sequence[Cell], aim: Aim) -> Found:
    found = [c for c in cells if aim["contender"] in c.contender and c.prediction]
    return Found(max(abs(c.prediction.error) for c in found if c.prediction), found)


_FIGURES: Final[Mapping[str, Callable[[Sequence[Cell], Aim], Found]]] = {
    "num_differing": _num_differing,
    "lowest_bound": _lowest_bound,
    "mean_ratio": _mean_ratio,
    "class_ratio": _class_ratio,
    "over_best_mode": _over_best_mode,
    "plain_over_peer": _plain_over_peer,
    "first_token_over_peer": _first_token_over_peer,
    "prediction_error": _prediction_error,
}


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def verdicts_on_all() -> list[Verdict]:
    aims = tomllib.loads((BENCH / "aims.toml").read_text(encoding="utf-8"))["aim"]
    return [judge(aim, BENCH / "records") for aim in aims]


def main(*arguments: str) -> int:
    verdicts = verdicts_on_all()
    for verdict in verdicts:
        print(verdict)
    is_failed = any(verdict.word == "FAIL" for verdict in verdicts)
    return int(is_failed and "--strict" in arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
