"""Summaries of a record: differing tokens, and speed over classes and against peers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from forerun.bench.measure.bootstrap import geometric_mean
from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.prompts.workloads import Kind
from forerun.bench.records.cells import Cell
from forerun.bench.records.record import Record


@dataclass(frozen=True)
class OverPeer:
    """Our default's tokens per second ÷ those of a peer's fastest mode, over some classes."""

    ratio: float
    modes: tuple[str, ...]
    cells: tuple[Cell, ...]  # ours and theirs

    @property
    def num_pairs(self) -> int:
        """The number of pairs in the class with the fewest."""
        return min(cell.num_pairs for cell in self.cells)


def differing_cells(cells: Iterable[Cell]) -> list[str]:
    """Return the cells where speculation gave other tokens than plain decoding; must be none."""
    own = [cell for cell in cells if peer_of(cell) is None and cell.contender != PLAIN]
    return [place(cell) for cell in own if cell.same_tokens not in (None, 1)]


def mean_ratio(cells: Iterable[Cell], kind: Kind) -> float | None:
    """Return the geometric mean, over classes of a kind, of our default's speed ÷ plain's."""
    ours = [cell for cell in cells if cell.contender == DEFAULT and cell.kind == kind]
    return geometric_mean([cell.ratio.median for cell in ours if cell.ratio])


def over_best_mode(cells: Sequence[Cell], peer: str, classes: Collection[str]) -> OverPeer | None:
    """Compare with the peer's fastest mode in each class; None if no class has both."""
    ratios, compared = list[float](), list[Cell]()
    modes = dict[str, None]()
    for ours in cells:
        if ours.contender == DEFAULT and ours.workload in classes:
            theirs = [c for c in cells if c.workload == ours.workload and peer_of(c) == peer]
            best = max(theirs, key=lambda c: c.tokens_per_second or 0.0, default=None)
            if best and best.tokens_per_second and ours.tokens_per_second:
                ratios.append(ours.tokens_per_second / best.tokens_per_second)
                modes[best.contender.partition("/")[2]] = None
                compared += [ours, best]
    mean = geometric_mean(ratios)
    return None if mean is None else OverPeer(mean, tuple(sorted(modes)), tuple(compared))


def labelled(record: Record) -> Record:
    """Return the record with peers named with their build, as wherever their figures appear."""
    labels = {name: peer_label(name, about) for name, about in record.contenders.items()}
    return replace(
        record,
        contenders={labels[name]: about for name, about in record.contenders.items()},
        cells=[replace(c, contender=labels.get(c.contender, c.contender)) for c in record.cells],
        divergences=[
            replace(d, contender=labels.get(d.contender, d.contender)) for d in record.divergences
        ],
    )


def peer_label(name: str, about: Mapping[str, Any]) -> str:
    """Return `llamacpp native build/plain`; records without a build are of the generic wheel."""
    is_wheel = "xllamacpp" in about.get("versions", {})
    build = about.get("build", "generic wheel" if is_wheel else None)
    peer, slash, mode = name.partition("/")
    return name if build is None else f"{peer} {build}{slash}{mode}"


def peer_of(cell: Cell) -> str | None:
    """Return the peer of a contender such as `llamacpp/plain`; None for our own."""
    name, slash, _mode = cell.contender.partition("/")
    return name if slash else None


def place(cell: Cell) -> str:
    return f"{cell.workload} × {cell.contender}"
