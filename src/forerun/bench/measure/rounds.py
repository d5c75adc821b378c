"""Interleaved timing: works take turns, so that a disturbance of the machine affects all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from forerun.bench.measure.timed_run import Clock

Name = TypeVar("Name")


def timed(work: Callable[[], object], clock: Clock) -> float:
    began = clock()
    work()
    return clock() - began


def rounds(
    works: Mapping[Name, Callable[[], float]],
    num_rounds: int,
    least: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[Name, list[float]]:
    """Return the seconds of each work, round by round, after one round of warm-up.

    ^C keeps the complete rounds, if they are `least` or more.
    """
    found: list[list[float]] = []
    try:
        for number in range(num_rounds + 1):
            progress(f"measuring, round {number} of {num_rounds}")
            found.append([work() for work in works.values()])
    except KeyboardInterrupt:
        if len(found) <= least:
            raise
    return {name: [times[idx] for times in found[1:]] for idx, name in enumerate(works)}
