"""When to spend a little time on finding out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.planning.acceptance_estimate import AcceptanceEstimate
from forerun.planning.allocation import PLAIN, Allocation, Allocator, Line, Share, replaced

_SHARE: Final = 0.008  # of all time may go into probes
_START: Final = 1.0  # plain passes that a fresh engine may spend at once
_FIRST_WAIT: Final = 16  # passes until a plain one is due
_SHORTEST_WAIT: Final = 2
_LONGEST_WAIT: Final = 256
_SURPRISE: Final = 0.1
_DEEPER_WAIT: Final = 8  # rounds without a second guess


class Allowance:
    """Probes never cost more than a small share of the time that has passed, plus a fixed start."""

    def __init__(self, plain_seconds: float) -> None:
        self._most = _START * plain_seconds
        self._left = self._most
        self.seconds_spent = 0.0

    def earn(self, seconds: float) -> None:
        self._left = min(self._most, self._left + _SHARE * seconds)

    def affords(self, seconds: float) -> bool:
        """A price that is too high now can be saved up for: a machine may have become slower."""
        self._most = max(self._most, seconds)
        return seconds <= self._left

    @property
    def is_in_debt(self) -> bool:
        return self._left < 0

    def spend(self, seconds: float) -> None:
        """A negative sum pays back what a probe earned."""
        self._left -= seconds
        self.seconds_spent += seconds


class BaselineClock:
    """Counts passes since a plain one was observed. Where every pass carries guesses, or none is
    observed, nothing else would show that plain passes do not cost what they did.

    Agreement doubles the wait, a surprise takes it back to the shortest.
    """

    def __init__(self) -> None:
        self._wait = _FIRST_WAIT
        self._num_passes = 0

    @property
    def is_due(self) -> bool:
        return self._num_passes >= self._wait

    def skip(self) -> None:
        """A pass went by unobserved."""
        self._num_passes += 1

    def observe(self, is_plain: bool, surprise: float) -> None:
        self._num_passes += 1
        if is_plain:
            agrees = abs(surprise) < _SURPRISE
            self._wait = min(_LONGEST_WAIT, 2 * self._wait) if agrees else _SHORTEST_WAIT
            self._num_passes = 0


@dataclass(frozen=True)
class Probe:
    """Let one request try a guess that is not believed to pay."""

    idx: int  # of the request in the batch
    share: Share
    seconds: float  # what it adds to the round


def find_probe(
    best: Allocation,
    lines: Sequence[Sequence[Line]],
    estimates: Sequence[Mapping[str, AcceptanceEstimate]],
    allocator: Allocator,
    allowance: Allowance,
) -> Probe | None:
    """A guess by the drafter about which the least was learnt lately, if it is affordable and
    could pay. Many shallow probes find a change sooner than few deep ones."""
    waiting = [
        (-estimates[idx][line.drafter].num_unseen, idx, share)
        for idx, own in enumerate(lines)
        for line in own
        if (share := _worth_seeing(best.shares[idx], line, estimates[idx][line.drafter]))
    ]
    if not waiting:
        return None
    _, idx, share = min(waiting, key=lambda found: found[:2])
    assert share.line is not None
    seconds = allocator.evaluate(replaced(best.shares, idx, share)).seconds - best.seconds
    if allowance.affords(seconds) and _could_pay(best, lines, share.line.drafter, allocator):
        return Probe(idx, share, seconds)
    return None


def _worth_seeing(share: Share, line: Line, estimate: AcceptanceEstimate) -> Share | None:
    """One guess where none is made; a second one where only the first has long been made."""
    if not line.is_costly or line.num_branches > 1:
        return None
    if share.depth == 0:
        return Share(line, 1)
    is_stuck = share == Share(line, 1) and estimate.num_deeper_unseen > _DEEPER_WAIT
    return Share(line, 2) if is_stuck and len(line.gains) > 1 else None


def _could_pay(
    best: Allocation, lines: Sequence[Sequence[Line]], drafter: str, allocator: Allocator
) -> bool:
    """Whether the round would be better if every guess of this drafter held."""
    certain = [
        next((x._replace(gains=[1.0] * len(x.gains)) for x in own if x.drafter == drafter), None)
        for own in lines
    ]
    most = max(len(line.gains) for line in certain if line)
    return any(
        allocator.evaluate([_capped(line, depth) for line in certain]).rate > best.rate
        for depth in range(1, most + 1)
    )


def _capped(line: Line | None, depth: int) -> Share:
    return Share(line, min(depth, len(line.gains))) if line else PLAIN
