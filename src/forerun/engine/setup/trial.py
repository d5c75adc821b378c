"""Whole rounds as requests will have them, timed before the first request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from forerun.drafters import NOBODY, Budget, Drafter
from forerun.engine.engine import Engine
from forerun.engine.metrics import Metrics
from forerun.engine.request.output_text import OutputText
from forerun.engine.request.request import Request
from forerun.engine.scheduling.limits import SchedulerLimits
from forerun.engine.scheduling.scheduler import Scheduler
from forerun.engine.scheduling.target_pool import TargetPool
from forerun.engine.step import Core
from forerun.interrupts import safe_point
from forerun.models.text.tokenizer import Tokenizer
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.speculation import Speculation
from forerun.types import SamplingParams

_PROMPT_LEN: Final = 8
# Prompts are padded to these lengths. Each is recorded when it first occurs: here, in no answer.
_PROMPT_LENS: Final = (16, 32, 64, 128, 256)
_WALKED_LENS: Final = (8, 16, 32, 64, 256)  # each has kernels of its own
_NUM_ROUNDS: Final = 12
_NUM_WARM: Final = 4  # first rounds, which compile and record what they use


@dataclass(frozen=True)
class Trial:
    """Runs one request alone, on a core without speculation to which drafters are added."""

    core: Core
    tokenizer: Tokenizer

    def seconds(self, drafters: Mapping[str, Drafter] = {}, depth: int = 0) -> float | None:
        """Return the median seconds of a whole step with guesses down to `depth`; None if the
        context has no room for a trial, or the drafter fails."""
        core = self._core(drafters, depth)
        num_tokens = (_NUM_WARM + _NUM_ROUNDS) * (1 + depth)
        if core.max_len < _PROMPT_LEN + num_tokens:
            return None
        if depth and core.model.kernels.begins_early:
            self._prompts(core, _PROMPT_LENS, 2 * depth + 2)
        seconds = self._rounds(core, _PROMPT_LEN, num_tokens)
        return median(seconds[_NUM_WARM:]) if seconds else None

    def walk(self, drafters: Mapping[str, Drafter], depth: int) -> None:
        """Run the first rounds after prompts of several lengths, some of them with a temperature
        and some with depth 1."""
        core, num_tokens = self._core(drafters, depth), 3 * depth + 3
        self._prompts(core, _WALKED_LENS, num_tokens)
        self._prompts(core, _WALKED_LENS[:1], num_tokens, temperature=1.0)
        self._prompts(self._core(drafters, 1), _WALKED_LENS[:1], num_tokens)

    def _core(self, drafters: Mapping[str, Drafter], depth: int) -> Core:
        if not drafters:
            return replace(self.core, speculation=None)
        guarded = GuardedDrafters(drafters, self.core.model.config.vocab_size)
        speculation = Speculation(guarded, None, Budget(depth))
        speculation.is_steady = self.core.model.kernels.begins_early
        return replace(self.core, speculation=speculation)

    def _prompts(
        self, core: Core, prompt_lens: Sequence[int], num_tokens: int, temperature: float = 0.0
    ) -> None:
        for prompt_len in prompt_lens:
            if prompt_len + num_tokens <= core.max_len:
                self._rounds(core, prompt_len, num_tokens, temperature)

    def _rounds(
        self, core: Core, prompt_len: int, num_tokens: int, temperature: float = 0.0
    ) -> list[float]:
        """Return the seconds of the first rounds after an arbitrary prompt, without the prompt's
        own; [] if the drafter failed."""
        params = SamplingParams(temperature=temperature, max_tokens=num_tokens, ignore_eos=True)
        text = OutputText.start(self.tokenizer, (), include_stop=False, skip_special=True)
        request = Request(
            NOBODY, (0,) * prompt_len, params, 0, 0, (), core.max_len, core.cache.new_table(), text
        )
        requests: dict[int, Request] = {}
        limits = SchedulerLimits(core.max_len, 1, prompt_len + num_tokens)
        scheduler = Scheduler(limits, TargetPool(core.cache, requests))
        engine = Engine(replace(core, scheduler=scheduler, requests=requests, metrics=Metrics()))
        engine.add([request])
        seconds = list[float]()
        while not engine.is_idle:
            safe_point()
            began = core.clock()
            engine.step()
            seconds.append(core.clock() - began)
            if len(seconds) > _NUM_WARM + _NUM_ROUNDS:  # the first is the prompt's
                engine.abort(request)
        core.cache.prefixes.tree.clear()
        if request.error is not None:
            raise request.error
        return [] if request.stats.drafter_failures else seconds[1:]
