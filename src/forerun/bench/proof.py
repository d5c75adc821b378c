"""The promise of bits, cell by cell: with speculation and without, the very same tokens."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from forerun.bench.many_drafters import with_drafters
from forerun.bench.named_prompts import NamedPrompt
from forerun.bench.proof_sample import BRANCHES, Choices, Run, sample_runs
from forerun.engine import LLM, CompletionOutput, SpeculativeConfig
from forerun.engine.request_options import RequestSpeculation
from forerun.types import SamplingParams

SAMPLING: Final[dict[str, dict[str, Any]]] = {
    "T=0": {"temperature": 0},
    "T=0.7 top_p=0.9": {"temperature": 0.7, "top_p": 0.9},
    "T=1 min_p=0.05 repetition=1.2": {
        "temperature": 1.0,
        "min_p": 0.05,
        "repetition_penalty": 1.2,
    },
    "T=0.9 bias presence=0.5 frequency=0.3": {
        "temperature": 0.9,
        "logit_bias": {30: 1.0, 198: -1.0, 284: 0.5},
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
    },
}

BATCH: Final = 8  # runs side by side: a batch must not matter either

Tell = Callable[[int, str], None]  # so many runs are done, and how


@dataclass(frozen=True)
class Cell(Run):
    """One run of the sample and what came of it."""

    num_tokens: int
    target_passes: int
    draft_tokens: int
    accepted_tokens: int
    first_difference: int | None  # index of the first token that differs; None: identical


def speculative_methods(model: str, num_layers: int) -> dict[str, dict[str, Any]]:
    """Every drafter, ready for a model that can draft for itself."""
    return {
        "auto": {},
        "prompt_lookup": {"method": "prompt_lookup"},
        "ngram_tables": {"method": "ngram_tables"},
        "unigram": {"method": "unigram"},
        "bigram": {"method": "bigram"},
        "random": {"method": "random"},
        "draft_model": {"method": "draft_model", "model": model},
        "own_layers": {"method": "own_layers", "num_layers": num_layers},
        "hybrid": {
            "method": "hybrid",
            "methods": ["prompt_lookup", "own_layers"],
            "num_layers": num_layers,
        },
        "merge": {"method": "merge", "methods": ["bigram", "prompt_lookup"]},
    }


class Proof:
    """A covering sample of prompts × drafters × shapes × sampling × depths, ready to run.

    One engine holds all drafters, built for the deepest and widest proposals. Every request names
    its drafter and brings its own ceiling, so a batch mixes drafters, depths and branches.
    """

    def __init__(
        self,
        llm: LLM,
        prompts: Sequence[NamedPrompt],
        methods: Mapping[str, dict[str, Any]],
        max_depth: int,
        num_tokens: int,
        seed: int,
        min_cells: int = 0,
    ) -> None:
        self._plain = llm.with_speculation(None)
        self._prompts = {prompt.name: prompt.encode(llm.tokenizer) for prompt in prompts}
        self._speculating = with_drafters(llm, _configs(methods, max_depth))
        self._num_tokens = num_tokens
        self._seed = seed
        self._expected: dict[tuple[str, str], tuple[int, ...]] = {}
        choices = Choices(list(self._prompts), list(methods), list(SAMPLING), max_depth)
        self.runs = sample_runs(choices, seed, min_cells)

    @property
    def num_plain(self) -> int:
        """Plain runs that the others are compared with."""
        return len({(run.prompt, run.sampling) for run in self.runs})

    def run(self, tell: Tell = lambda *_: None) -> Iterator[Cell]:
        """Batch by batch; plain decoding, each prompt truly alone, when it is first needed."""
        for batch in mixed_batches(self.runs):
            expected = [self._plain_tokens(run, tell) for run in batch]
            outputs = self._generate(batch)
            tell(len(batch), "together")
            yield from map(_judged, batch, outputs, expected)

    def _plain_tokens(self, run: Run, tell: Tell) -> tuple[int, ...]:
        key = (run.prompt, run.sampling)
        if key not in self._expected:
            (answer,) = self._plain.generate(
                self._prompts[run.prompt], self._params(run), cache_salt=" · ".join(key)
            )
            self._expected[key] = answer.outputs[0].token_ids
            tell(1, "plain")
        return self._expected[key]

    def _generate(self, runs: Sequence[Run]) -> list[CompletionOutput]:
        answers = self._speculating.generate(
            [self._prompts[run.prompt] for run in runs],
            [self._params(run) for run in runs],
            speculation=[
                RequestSpeculation(run.method, run.depth, run.num_branches) for run in runs
            ],
        )
        return [answer.outputs[0] for answer in answers]

    def _params(self, run: Run) -> SamplingParams:
        return SamplingParams(
            max_tokens=self._num_tokens,
            ignore_eos=True,
            seed=self._seed,
            **SAMPLING[run.sampling],
        )


def _configs(methods: Mapping[str, dict[str, Any]], max_depth: int) -> dict[str, SpeculativeConfig]:
    ceiling = {"num_speculative_tokens": max_depth, "num_branches": max(BRANCHES)}
    return {
        name: SpeculativeConfig.from_dict(options | ceiling) for name, options in methods.items()
    }


def mixed_batches(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Different prompts side by side, each with another drafter; then the same prompts again.

    So a batch mixes drafters, and only the first run of a prompt computes the prompt.
    """
    by_prompt: dict[str, deque[Run]] = {}
    for run in sorted(runs, key=lambda run: run.method):
        by_prompt.setdefault(run.prompt, deque()).append(run)
    queues = list(by_prompt.values())
    for number, queue in enumerate(queues):
        queue.rotate(number)
    for first in range(0, len(queues), BATCH):
        for column in itertools.zip_longest(*queues[first : first + BATCH]):
            yield [run for run in column if run is not None]


def _judged(run: Run, output: CompletionOutput, expected: tuple[int, ...]) -> Cell:
    pairs = itertools.zip_longest(output.token_ids, expected)
    differing = (idx for idx, (got, want) in enumerate(pairs) if got != want)
    return Cell(
        **asdict(run),
        num_tokens=len(output.token_ids),
        target_passes=output.stats["target_passes"],
        draft_tokens=output.stats["draft_tokens"],
        accepted_tokens=output.stats["accepted_tokens"],
        first_difference=next(differing, None),
    )
