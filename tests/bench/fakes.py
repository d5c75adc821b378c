"""Contenders with made-up times, and records of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.measure.prediction import Costs
from forerun.bench.measure.side_by_side import SideBySide
from forerun.bench.measure.timed_run import Pass, TimedRun
from forerun.bench.prompts.workloads import BenchPrompt, build_workloads
from forerun.bench.records.record import Record
from forerun.bench.session import Session
from forerun.engine import LLM
from forerun.theory.verify_cost import LinearVerifyCost

HEAD: Final[Mapping[str, Any]] = {
    "created": "2026-11-15T00:00:00+00:00",
    "commit": "c0ffee",
    "machine": {"cpu": "Abacus", "num_cores": 2, "architecture": "beads"},
    "versions": {"forerun": "0"},
    "model": {"name": "toy", "file": "toy.gguf", "num_bytes": 8, "sha256": "ab"},
    "settings": {"max_tokens": 8, "temperature": 0.0, "seed": 0, "acceptance": "coupled"},
}
COSTS = Costs(draft_step=0.0, verify=LinearVerifyCost(0.0), plain_seconds=0.01)


def made_run(
    tokens: Sequence[int] = (1, 2, 3, 4, 5), per_pass: int = 1, seconds: float = 0.01
) -> TimedRun:
    """Return a run with its first token after 0.1 s, then `per_pass` every `seconds`; all guesses
    are accepted."""
    arrivals, passes, at, left = [(0.1, 1)], list[Pass](), 0.1, len(tokens) - 1
    while left > 0:
        num, at = min(per_pass, left), at + seconds
        arrivals.append((at, num))
        passes.append(Pass(per_pass - 1, per_pass - 1, num - 1, seconds))
        left -= num
    guesses, accepted = sum(p.num_guesses for p in passes), sum(p.num_accepted for p in passes)
    return TimedRun(tuple(tokens), tuple(arrivals), tuple(passes), guesses, accepted)


@dataclass
class Scripted:
    """A contender that answers with the prompt's own tokens, at a steady pace."""

    name: str
    per_pass: int = 1
    seconds: float = 0.01
    stop_after: int | None = None  # answers before ^C
    asked: list[int] = field(default_factory=list)

    @property
    def about(self) -> Mapping[str, Any]:
        return {"engine": "made up"}

    def answer(
        self, prompt: Sequence[int], max_tokens: int, _: BenchPrompt | None = None
    ) -> TimedRun:
        if self.stop_after is not None and len(self.asked) >= self.stop_after:
            raise KeyboardInterrupt
        self.asked.append(max_tokens)
        return made_run(list(prompt)[: min(max_tokens, 5)], self.per_pass, self.seconds)


def side_by_side(
    llm: LLM,
    *contenders: Scripted,
    peers: Sequence[Scripted] = (),
    num_pairs: int = 3,
    names: Sequence[str] = ("chat", "story"),
) -> SideBySide:
    return SideBySide(
        workloads=build_workloads(names, num_pairs, seed=0),
        engines=contenders,
        peers=peers,
        tokenizer=llm.tokenizer,
        max_tokens=8,
        num_pairs=num_pairs,
        seed=0,
    )


def made_record(
    llm: LLM,
    path: Path | None = None,
    *,
    default: Scripted | None = None,
    peers: Sequence[Scripted] = (),
    names: Sequence[str] = ("chat", "story"),
    num_pairs: int = 3,
) -> Record:
    """Return a record of plain decoding against a default that emits two tokens a pass."""
    ours = default or Scripted(DEFAULT, per_pass=2)
    side = side_by_side(llm, Scripted(PLAIN), ours, peers=peers, names=names, num_pairs=num_pairs)
    return Session(side, HEAD, {DEFAULT: COSTS}, path).run(llm, lambda _: None)
