"""Interleaved runs: every contender answers a prompt before the next prompt.

A disturbance of the machine then affects all of them, and ratios are taken within a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from forerun.bench.measure.contenders import PLAIN, Contender
from forerun.bench.measure.timed_run import TimedRun
from forerun.bench.prompts.workloads import BenchPrompt, Workload
from forerun.models.text.tokenizer import Tokenizer

# Not one of the timed prompts: drafters may remember earlier answers.
_WARM_UP: Final = BenchPrompt("warm-up", "Count from one to twenty, in words.")


@dataclass(frozen=True)
class Measurement:
    workload: str
    pair_idx: int
    prompt: str
    contender: str
    run: TimedRun


@dataclass(frozen=True)
class SideBySide:
    """`engines` starts with plain; `peers` are asked for exactly as many tokens as plain gave."""

    workloads: Sequence[Workload]
    engines: Sequence[Contender]
    peers: Sequence[Contender]
    tokenizer: Tokenizer
    max_tokens: int
    num_pairs: int
    seed: int

    @property
    def num_runs(self) -> int:
        contenders = len(self.engines) + len(self.peers)
        return self.num_pairs * len(self.workloads) * contenders

    def warm_up(self) -> Iterator[Contender]:
        """Get a short, untimed answer from each: compiles, maps the weights, fills the caches."""
        prompt = _WARM_UP.encode(self.tokenizer)
        for contender in (*self.engines, *self.peers):
            contender.answer(prompt, min(8, self.max_tokens))
            yield contender

    def measure(self) -> Iterator[Measurement]:
        """Measure pair by pair over all classes, with the contenders in random order."""
        random = Random(self.seed)
        for pair_idx in range(self.num_pairs):
            for workload in self.workloads:
                yield from self._pair(workload, pair_idx, random)

    def _pair(self, workload: Workload, pair_idx: int, random: Random) -> Iterator[Measurement]:
        prompt = workload.prompts[pair_idx % len(workload.prompts)]
        tokens = prompt.encode(self.tokenizer)
        num_tokens = self.max_tokens
        for contender in random.sample(self.engines, len(self.engines)):
            run = contender.answer(tokens, self.max_tokens, prompt)
            if contender.name == PLAIN:
                num_tokens = len(run.tokens)
            yield Measurement(workload.name, pair_idx, prompt.name, contender.name, run)
        for peer in random.sample(self.peers, len(self.peers)):
            run = peer.answer(tokens, num_tokens, prompt)
            yield Measurement(workload.name, pair_idx, prompt.name, peer.name, run)
