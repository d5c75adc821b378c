"""Where the time of a plain token goes: the steps of its pass, by kind, and Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median, quantiles
from typing import Any, Final

import numpy as np

from forerun.bench.measure.rounds import rounds, timed
from forerun.bench.measure.timed_run import Clock
from forerun.cache.cache_size import CacheSize
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.kernels import Plan
from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.runtime.kinds import WHOLE
from forerun.models.llama import LlamaModel
from forerun.sampling import Context, CoupledDraws, Noise
from forerun.types import Proposal, SamplingParams, Span

_LEAST_READ: Final = 1 << 20  # bytes
_TOKEN: Final = 7  # an arbitrary token id
_WARMING, _IN_A_ROW = 3, 8
_MIN_ROUNDS: Final = 2  # for quartiles
_PARAMS: Final = SamplingParams(temperature=1.0, seed=0, ignore_eos=True)


class _PlainPass:
    """Repeats a pass over one token after `num_context` others."""

    def __init__(self, model: LlamaModel, num_context: int) -> None:
        size = CacheSize.for_requests(1, num_context + 1)
        self._model, self._num_context = model, num_context
        self.cache = model.new_cache(size.num_pages, size.page_size)
        self._table = self.cache.new_table()
        self._forward(num_context)

    def run(self) -> None:
        self._forward(1)
        self._table.truncate_to(self._num_context)

    def _forward(self, num_tokens: int) -> None:
        start = self._table.reserve(num_tokens)
        span = Span.prompt_chunk(start, (_TOKEN,) * num_tokens, is_last=True)
        plan, end = Plan.build([(span, self._table)]), start + num_tokens
        draw = CoupledDraws(_PARAMS, Noise(0), end, Context(), (), Proposal.empty())
        self._model.draw(plan, self.cache, [draw])


def measure_profile(
    llm: LLM, clock: Clock, num_context: int = 256, num_rounds: int = 25
) -> dict[str, Any]:
    """Return the seconds of a token of `llm.stream` and of its parts, and the bytes they read.

    Python's share is the time of a token less that of the compiled steps of its pass. Runs of some
    tokens and of as many passes take turns, so the difference may be negative; and it is less than
    the time that Python runs if other threads work meanwhile.
    """
    kernels = llm.model.kernels
    if not isinstance(kernels, CpuKernels):
        raise InvalidOption("--profile looks into the cpu kernels; drop --kernels reference.")
    one_pass = _PlainPass(llm.model, num_context)
    one_pass.run()
    kinds = kernels.kinds_of_pass(one_pass.cache.store, num_tokens=1)
    weight_bytes = {kind.name: kind.weight_bytes for kind in kinds if kind.name != WHOLE}
    # As many bytes as the weights, read as often, so that caches treat both alike.
    memory = np.ones(max(sum(weight_bytes.values()), _LEAST_READ) // 8, np.int64)
    params = _PARAMS.with_(max_tokens=_WARMING + _IN_A_ROW + 1)
    prompt = [_TOKEN] * max(1, num_context - _WARMING - _IN_A_ROW // 2)

    def token() -> float:
        """Return the seconds of a token whose pass began early, as in a running stream."""
        stream = llm.stream(prompt, params)
        for _ in range(_WARMING):
            next(stream)
        return in_a_row(lambda: next(stream))

    def in_a_row(work: Callable[[], object]) -> float:
        return timed(lambda: [work() for _ in range(_IN_A_ROW)], clock) / _IN_A_ROW

    works: dict[str, Callable[[], float]] = {
        "token": token,
        "pass": partial(timed, one_pass.run, clock),
        **{kind.name: partial(in_a_row, kind.run) for kind in kinds},  # a pass sets their buffers
        "read": partial(in_a_row, lambda: kernels.read(memory)),
    }
    times = rounds(works, num_rounds, least=_MIN_ROUNDS)
    seconds = {name: median(taken) for name, taken in times.items()}
    for kind in kinds:
        if kind.is_left_out:
            seconds[kind.name] = max(0.0, seconds[WHOLE] - seconds[kind.name])
    seconds["read"] /= memory.nbytes
    num_bytes = dict(weight_bytes)
    row_bytes = kernels.row_bytes(llm.model.shape, llm.model.config.num_layers)
    num_bytes["attention"] = num_context * row_bytes
    shares = [1 - alone / one for one, alone in zip(times["token"], times[WHOLE], strict=True)]
    is_complete = len(shares) == num_rounds
    return {"is_complete": is_complete, **_report(seconds, shares, num_bytes, num_context)}


def _report(
    seconds: dict[str, float], shares: list[float], num_bytes: dict[str, int], num_context: int
) -> dict[str, Any]:
    """Return the report; `shares` are Python's shares of a token, round by round."""
    token, forward, read = (seconds.pop(name) for name in ("token", "pass", "read"))
    del seconds[WHOLE]
    low, share, high = quantiles(shares, n=4, method="inclusive")
    steps = token * (1 - share)
    apart = sum(seconds.values())  # a little more than together if they disturb each other
    parts = {name: taken * min(1, steps / apart) for name, taken in seconds.items()}
    parts |= {"between steps": max(0, steps - apart), "Python": token * share}
    return {
        "num_context": num_context,
        "read_bytes_per_second": 1 / read,
        "token_s": token,
        "pass_s": forward,
        "python_quartiles": [low, high],
        "parts": {
            name: {"seconds": taken, "bytes": num_bytes.get(name, 0)}
            for name, taken in parts.items()
        },
    }
