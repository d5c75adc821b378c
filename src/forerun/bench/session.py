"""A bench from warm-up to record; an interruption keeps what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun.bench.measure.contenders import PLAIN
from forerun.bench.measure.prediction import Costs
from forerun.bench.measure.side_by_side import Measurement, SideBySide
from forerun.bench.peers.divergence import Divergence, before_end, first_difference, margin_at
from forerun.bench.records.cells import sum_up
from forerun.bench.records.record import Record, run_record, write_json
from forerun.engine import LLM

Progress = Callable[[str], None]  # called after each run with its name


@dataclass
class Session:
    """A run of the bench; the record is written to `path` after every pair, so that stopping loses
    one pair at most."""

    side: SideBySide
    head: Mapping[str, Any]  # created, commit, machine, versions, model, settings
    costs: Mapping[str, Costs]
    path: Path | None = None
    measurements: list[Measurement] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)

    def run(self, llm: LLM, progress: Progress) -> Record:
        """Measure everything, or as much as there is at ^C, and return the record."""
        try:
            for contender in self.side.warm_up():
                progress(f"warm-up: {contender.name}")
            for measurement in self.side.measure():
                self.measurements.append(measurement)
                progress(f"{measurement.workload}: {measurement.contender}")
                if self.path is not None and self._is_pair_done():
                    self._write(is_complete=False)
            self._find_divergences(llm)
        except KeyboardInterrupt:
            return self._write(is_complete=False)
        return self._write(is_complete=True)

    def _is_pair_done(self) -> bool:
        return len(self.measurements) % (len(self.side.engines) + len(self.side.peers)) == 0

    def _write(self, *, is_complete: bool) -> Record:
        record = self._record(is_complete)
        if self.path is not None:
            write_json(self.path, record.as_dict())
        return record

    def _record(self, is_complete: bool) -> Record:
        contenders = (*self.side.engines, *self.side.peers)
        return Record(
            **self.head,
            workloads={
                w.name: {"kind": str(w.kind), "digest": w.digest, "num_prompts": len(w.prompts)}
                for w in self.side.workloads
            },
            contenders={c.name: dict(c.about) for c in contenders},
            costs=costs_as_dict(self.costs),
            runs=[run_record(m) for m in self.measurements],
            cells=sum_up(self.measurements, self.side.workloads, self.costs, self.side.seed),
            divergences=list(self.divergences),
            is_complete=is_complete,
        )

    def _find_divergences(self, llm: LLM) -> None:
        """Find, per peer and class, the first answer that differs from ours, and its margin."""
        plain = {
            (m.workload, m.pair_idx): before_end(m.run.tokens, self.side.tokenizer.eos_ids)
            for m in self.measurements
            if m.contender == PLAIN
        }
        peers, seen = {peer.name for peer in self.side.peers}, set[tuple[str, str]]()
        for m in self.measurements:
            ours = plain.get((m.workload, m.pair_idx), ())
            at = first_difference(ours, m.run.tokens)
            place = (m.workload, m.contender)
            if m.contender in peers and at is not None and place not in seen:
                seen.add(place)
                self.divergences.append(self._divergence(llm, m, ours, at))

    def _divergence(self, llm: LLM, m: Measurement, ours: Sequence[int], at: int) -> Divergence:
        workload = next(w for w in self.side.workloads if w.name == m.workload)
        prompt = workload.prompts[m.pair_idx % len(workload.prompts)]
        tokenizer = self.side.tokenizer
        prefix = [*prompt.encode(tokenizer), *ours[:at]]
        mine, theirs = ours[at], m.run.tokens[at]
        return Divergence(
            workload=m.workload,
            prompt=m.prompt,
            contender=m.contender,
            at=at,
            ours=tokenizer.decode([mine], skip_special=False, continuing=True),
            theirs=tokenizer.decode([theirs], skip_special=False, continuing=True),
            margin=margin_at(llm, prefix, mine, theirs),
        )


def costs_as_dict(costs: Mapping[str, Costs]) -> dict[str, Any]:
    """Return the pass times, which are the same for all, and c of each contender."""
    if not costs:
        return {}
    first = next(iter(costs.values()))
    points = getattr(first.verify, "points", ())
    return {
        "plain_pass_ms": first.plain_seconds * 1000,
        "verify": {str(depth): cost for depth, cost in points},
        "draft_step": {name: cost.draft_step for name, cost in costs.items()},
    }
