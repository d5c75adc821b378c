"""Measurements, summed up: one cell for each class and contender."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from forerun.bench.measure.bootstrap import Interval, Quantiles, median_interval, quantiles_ms
from forerun.bench.measure.contenders import PLAIN
from forerun.bench.measure.prediction import Costs, Prediction, predict
from forerun.bench.measure.side_by_side import Measurement
from forerun.bench.measure.timed_run import Pass, TimedRun
from forerun.bench.prompts.workloads import Workload


@dataclass(frozen=True)
class Cell:
    """One contender in one class. Ratios compare with plain on the same prompt: above 1 is faster.

    `ratio` compares decoding, from the first token on; `ratio_whole` compares whole answers, prompt
    included. `wait_ms` is the wait before each token (0 for tokens that come together), `answer_ms`
    the mean of those waits within an answer, both in milliseconds.
    """

    workload: str
    kind: str
    contender: str
    num_pairs: int
    num_tokens: int
    tokens_per_second: float | None
    tokens_per_pass: float | None
    acceptance_rate: float | None
    acceptance_by_position: list[float]
    ttft_ms: Quantiles | None
    wait_ms: Quantiles | None
    answer_ms: Quantiles | None
    ratio: Interval | None
    ratio_whole: Interval | None
    same_tokens: float | None  # share of answers that equal plain's, token for token
    prediction: Prediction | None
    ratio_ttft: Interval | None = None  # plain's time to first token ÷ this one's

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        if self.prediction is not None:
            found["prediction"]["error"] = self.prediction.error
        return found


def sum_up(
    measurements: Sequence[Measurement],
    workloads: Sequence[Workload],
    costs: Mapping[str, Costs],
    seed: int,
) -> list[Cell]:
    """Return all cells that have at least one run, in the order of the classes."""
    runs: dict[tuple[str, str], dict[int, TimedRun]] = {}
    for m in measurements:
        runs.setdefault((m.workload, m.contender), {})[m.pair_idx] = m.run
    names = list(dict.fromkeys(m.contender for m in measurements))
    names.sort(key=lambda name: name != PLAIN)
    cells = []
    for workload in workloads:
        plain = runs.get((workload.name, PLAIN), {})
        for name in names:
            if (workload.name, name) in runs:
                group = _Group(tuple(runs[workload.name, name].items()), plain)
                cells.append(group.cell(workload, name, costs.get(name), seed))
    return cells


@dataclass(frozen=True)
class _Group:
    """The runs of one contender in one class, and those of plain, by pair."""

    runs_by_pair: tuple[tuple[int, TimedRun], ...]
    plain: Mapping[int, TimedRun]

    @property
    def runs(self) -> list[TimedRun]:
        return [run for _, run in self.runs_by_pair]

    @property
    def passes(self) -> list[Pass]:
        return [p for run in self.runs for p in run.passes]

    @property
    def pairs(self) -> list[tuple[TimedRun, TimedRun]]:
        return [(self.plain[idx], run) for idx, run in self.runs_by_pair if idx in self.plain]

    @property
    def plain_passes(self) -> list[Pass]:
        return [p for plain, _ in self.pairs for p in plain.passes]

    def cell(self, workload: Workload, name: str, costs: Costs | None, seed: int) -> Cell:
        runs, passes = self.runs, self.passes
        decoded, seconds = sum(r.num_decoded for r in runs), sum(r.decode_seconds for r in runs)
        guessed, accepted = sum(r.num_guesses for r in runs), sum(r.num_accepted for r in runs)
        ratio = median_interval(_ratios(self.pairs, lambda run: run.seconds_per_token), seed)
        return Cell(
            workload=workload.name,
            kind=str(workload.kind),
            contender=name,
            num_pairs=len(runs),
            num_tokens=sum(len(run.tokens) for run in runs),
            tokens_per_second=decoded / seconds if seconds > 0 else None,
            tokens_per_pass=decoded / len(passes) if passes else None,
            acceptance_rate=accepted / guessed if guessed else None,
            acceptance_by_position=by_position(passes),
            ttft_ms=quantiles_ms([run.ttft for run in runs]),
            wait_ms=quantiles_ms([wait for run in runs for wait in run.waits]),
            answer_ms=quantiles_ms([s for run in runs if (s := run.seconds_per_token)]),
            ratio=ratio,
            ratio_whole=median_interval(_ratios(self.pairs, _whole), seed),
            ratio_ttft=median_interval(_ratios(self.pairs, lambda run: run.ttft), seed),
            same_tokens=_share_same(self.pairs),
            prediction=(
                predict(passes, self.plain_passes, costs, ratio.median) if costs and ratio else None
            ),
        )


def by_position(passes: Sequence[Pass]) -> list[float]:
    """Return, for each place in a proposal, the accepted share of the rounds that reached it."""
    deepest = max((p.depth for p in passes), default=0)
    return [
        sum(p.num_accepted >= place for p in passes) / sum(p.depth >= place for p in passes)
        for place in range(1, deepest + 1)
    ]


def _whole(run: TimedRun) -> float | None:
    return run.seconds / len(run.tokens) if run.tokens else None


def _ratios(
    pairs: Sequence[tuple[TimedRun, TimedRun]], time: Callable[[TimedRun], float | None]
) -> list[float]:
    """Return plain's time ÷ the contender's, for the pairs in which both have one."""
    times = [(time(plain), time(run)) for plain, run in pairs]
    return [one / other for one, other in times if one and other]


def _share_same(pairs: Sequence[tuple[TimedRun, TimedRun]]) -> float | None:
    return sum(a.tokens == b.tokens for a, b in pairs) / len(pairs) if pairs else None
