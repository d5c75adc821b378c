"""Measure c and v: the cost of a guess and of a longer pass, in plain passes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from forerun.bench.measure.contenders import fixed_depth
from forerun.bench.measure.prediction import Costs
from forerun.bench.measure.teacher_forcing import KnownText, drafter_for, proposals_along
from forerun.bench.measure.timed_run import Clock, time_stream
from forerun.engine import LLM, RequestSpeculation, SpeculativeConfig
from forerun.theory.verify_cost import MeasuredVerifyCost
from forerun.types import SamplingParams

_PARAMS: Final = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
_REPEATS: Final = 4
_ROUNDS: Final = 4  # per repeat


def measure_passes(
    llm: LLM, prompt: Sequence[int], depths: Sequence[int], clock: Clock
) -> dict[int, float]:
    """Return the seconds of a pass over γ guesses, for γ = 0 and each depth.

    Random guesses cost nothing to make and are hardly ever accepted, so a round takes the time of
    the pass, plus the overhead that a plain round also has.
    """
    depths = [depth for depth in depths if depth > 0]
    plain = llm.with_speculation(None)
    guessing = llm.with_speculation(fixed_depth("random", max(depths, default=1), {}))
    seconds: dict[int, list[float]] = {depth: [] for depth in (0, *depths)}
    for repeat in range(_REPEATS + 1):
        for depth, times in seconds.items():
            twin = guessing if depth else plain
            own = RequestSpeculation(num_speculative_tokens=depth)
            params = _PARAMS.with_(max_tokens=1 + _ROUNDS * (depth + 1))
            run = time_stream(twin, prompt, params, clock, 1 + _ROUNDS, own)
            if repeat:  # the first round warms up
                times += [p.seconds for p in run.passes if p.num_guesses == depth]
    return {depth: statistics.median(times) for depth, times in seconds.items() if times}


def measure_draft_step(
    llm: LLM,
    config: SpeculativeConfig,
    prompt: Sequence[int],
    output: Sequence[int],
    clock: Clock,
    cache_dir: Path | None,
) -> float:
    """Return the seconds of one guess: the median over the prefixes of a known text."""
    drafter = drafter_for(llm, config, cache_dir)
    text = KnownText(0, tuple(prompt), _PARAMS, seed=0)
    depth = config.depth
    steps: list[float] = []
    along = proposals_along(drafter, text, output, depth, llm.model)
    for idx in range(len(output)):
        began = clock()
        proposal = next(along)
        if idx:  # the first proposal reads the whole prompt
            steps.append((clock() - began) / max(1, proposal.depth))
    along.close()
    return statistics.median(steps)


def costs_by_contender(
    llm: LLM,
    configs: Mapping[str, SpeculativeConfig],
    prompt: Sequence[int],
    clock: Clock,
    cache_dir: Path | None,
) -> dict[str, Costs]:
    """Return the costs of guesses and passes of each contender that speculates.

    `choice` is left out: its drafters differ in cost, so it has no single c to predict from.
    """
    deepest = max((c.depth * c.num_branches for c in configs.values()), default=0)
    passes = measure_passes(llm, prompt, _points(deepest), clock)
    plain = passes[0]
    verify = MeasuredVerifyCost(
        tuple((d, s / plain) for d, s in passes.items() if d) or ((0, 1.0),)
    )
    output = llm.with_speculation(None).generate(list(prompt), _PARAMS)[0].outputs[0].token_ids
    return {
        name: Costs(
            measure_draft_step(llm, config, prompt, output, clock, cache_dir) / plain, verify, plain
        )
        for name, config in configs.items()
        if config.method != "choice"
    }


def _points(deepest: int) -> list[int]:
    """Return every depth up to 4, then wider steps; costs in between are interpolated."""
    steps = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
    return [*(step for step in steps if step < deepest), deepest] if deepest else []
