"""The engine at a given acceptance rate: with a draft model that is wrong that often, and with an
oracle that costs nothing.

All parts are those that serve requests: scheduler, drafting, pass, draws, verdicts, commit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np
import tokenizers

from forerun.drafters import Budget, Drafter, DraftModel, RequestView, Target
from forerun.engine.api.input_processor import InputProcessor
from forerun.engine.engine import Engine
from forerun.engine.request.options import RequestOptions
from forerun.engine.setup.building import build_core
from forerun.engine.setup.memory import CacheMemory
from forerun.grammars import Grammars
from forerun.models.llama import LlamaModel
from forerun.models.text.token_bytes import Spelling
from forerun.models.text.tokenizer import Tokenizer, TokenizerTraits
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.speculation import Speculation
from forerun.types import Proposal, SamplingParams, Verdict

ALPHA: Final = 0.8
DEPTH: Final = 5
DRAFTED_DEPTHS: Final = (1, 2, 3, 4)
_CONTEXT_LEN: Final = 128
_NUM_TOKENS: Final = 200
_NUM_REPEATS: Final = 4
_NUM_SPOILED: Final = 4  # oracle runs per answer, each spoiled at other places, to even out luck
_PARAMS: Final = SamplingParams(temperature=0, max_tokens=_NUM_TOKENS, ignore_eos=True)
_MAX_LEN: Final = 512


def measure_oracle(
    models: Mapping[str, LlamaModel], target: str, draft: str | None
) -> dict[str, Any]:
    """Return the seconds per token of the `target` shape: plain, with an oracle that costs nothing,
    and with a draft model of the `draft` shape, of whose tokens a share of `1 - ALPHA` is wrong."""
    bench = _Bench(models[target])
    oracle = bench.measure(Oracle(bench.answers), DEPTH, _NUM_SPOILED)
    found: dict[str, Any] = {
        "target": target,
        "alpha": ALPHA,
        "plain_s": oracle["plain_s"],
        "oracle": oracle,
    }
    if draft is not None:
        runs = []
        for depth in DRAFTED_DEPTHS:
            drafter = DraftModel(models[draft], bench.vocab_size)
            drafter.allocate(_MAX_LEN // 16, 16)
            runs.append(bench.measure(drafter, depth))
        found["draft"] = {"shape": draft, "runs": runs}
    return found


@dataclass
class Oracle:
    """Guesses a known answer, each token spoiled with probability 1 − α."""

    answers: Mapping[tuple[int, ...], Sequence[int]]  # by prompt
    picks = False

    def __post_init__(self) -> None:
        self._is_open = False
        self._rng = np.random.default_rng(0)

    @property
    def num_requests(self) -> int:
        return int(self._is_open)

    def begin(self, request: RequestView) -> None:
        """Choose the wrong guesses here, so that guessing takes no time. A wrong place stays wrong:
        what follows it is not verified in that round, and guessed again later."""
        answer = self.answers[tuple(request.prompt)]
        is_bad = self._rng.random(len(answer)) >= ALPHA
        pairs = zip(answer, is_bad.tolist(), strict=True)
        self._is_open, self._guesses = True, [abs(t - 1) if bad else t for t, bad in pairs]

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        (request,), (budget,) = requests, budgets
        num_known = len(request.output)
        return [Proposal.chain(self._guesses[num_known : num_known + budget.depth])]

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        """Do nothing: the answer is known."""

    def end(self, request: RequestView) -> None:
        del request
        self._is_open = False


class _Run(NamedTuple):
    answer: tuple[int, ...]
    seconds: float
    num_rounds: int
    num_tokens: int


class _Bench:
    def __init__(self, model: LlamaModel) -> None:
        self.vocab_size = model.config.vocab_size
        # The model's ids lie beyond this vocabulary, so they decode to nothing.
        backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
        self._tokenizer = Tokenizer(backend, TokenizerTraits(Spelling.BYTE_LEVEL))
        self._target = Target(model, self._tokenizer, None)
        rng = np.random.default_rng(1)
        self._prompts = [
            tuple(rng.integers(1, self.vocab_size, _CONTEXT_LEN).tolist())
            for _ in range(_NUM_REPEATS + 1)
        ]
        engine = self._engine(None, 0)
        self.answers = {prompt: self._run(engine, prompt).answer for prompt in self._prompts}

    def _engine(self, drafter: Drafter | None, depth: int) -> Engine:
        core = build_core(self._target, CacheMemory(1), _MAX_LEN, None)
        if drafter is not None:
            drafters = GuardedDrafters({"drafter": drafter}, self.vocab_size)
            core = replace(core, speculation=Speculation(drafters, None, Budget(depth)))
        return Engine(core)

    def _run(self, engine: Engine, prompt: tuple[int, ...]) -> _Run:
        """Run a request, timed from its first token until the end of the answer would cut guesses
        short: passes of such sizes would be recorded while the clock runs."""
        options = RequestOptions()
        (request,) = InputProcessor(
            self._tokenizer, engine.core, Grammars(self._tokenizer)
        ).requests(list(prompt), _PARAMS, options)
        engine.add([request])
        while not request.output:
            engine.step()
        began, num_rounds, num_before = time.perf_counter(), 0, len(request.output)
        while not request.is_over and len(request.output) < _NUM_TOKENS - 2 * DEPTH:
            engine.step()
            num_rounds += 1
        seconds, num_tokens = time.perf_counter() - began, len(request.output) - num_before
        while not engine.is_idle:
            engine.step()
        if request.error is not None:
            raise request.error
        return _Run(tuple(request.output), seconds, num_rounds, num_tokens)

    def measure(self, drafter: Drafter, depth: int, num_each: int = 1) -> dict[str, Any]:
        """Run each prompt but the first, which warms up, `num_each` times, in turns with plain."""
        engines = self._engine(None, 0), self._engine(drafter, depth)
        warming, *others = self._prompts
        for engine in engines:
            self._run(engine, warming)
        prompts = others * num_each
        pairs = [tuple(self._run(engine, prompt) for engine in engines) for prompt in prompts]
        plain, runs = zip(*pairs, strict=True)
        plain_s = median(run.seconds / run.num_tokens for run in plain)
        rounds = sorted(run.seconds / run.num_rounds for run in runs)
        num_tokens, num_rounds = sum(r.num_tokens for r in runs), sum(r.num_rounds for r in runs)
        token_s = median(rounds) * num_rounds / num_tokens
        answers = zip(prompts, plain, runs, strict=True)
        return {
            "depth": depth,
            "plain_s": plain_s,
            "token_s": token_s,
            "speedup": plain_s / token_s,
            "round_s": {"median": median(rounds), "low": rounds[0], "high": rounds[-1]},
            "tokens_per_round": num_tokens / num_rounds,
            "expected_tokens": (1 - ALPHA ** (depth + 1)) / (1 - ALPHA),
            "num_different": sum({p.answer, r.answer} != {self.answers[x]} for x, p, r in answers),
        }
