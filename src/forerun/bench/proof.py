"""The promise of bits, cell by cell: with speculation and without, the very same tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from forerun.bench.named_prompts import NamedPrompt
from forerun.bench.proof_sample import BRANCHES, Choices, Run, sample_runs
from forerun.engine import LLM, CompletionOutput
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

BATCH: Final = 8  # runs that share a drafter go side by side: a batch must not matter either

Tell = Callable[[int, str], None]  # so many runs are done, and of which drafter


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

    Each drafter has one engine, built for the deepest and widest proposals; every request brings
    its own ceiling, so a batch mixes depths and branches.
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
        self._llm = llm
        self._plain = llm.with_speculation(None)
        self._prompts = {prompt.name: prompt.encode(llm.tokenizer) for prompt in prompts}
        self._methods = methods
        self._max_depth = max_depth
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
        """Drafter by drafter; plain decoding, each prompt truly alone, when it is first needed."""
        for method in self._methods:
            llm = self._speculating(method)
            for batch in _batches([run for run in self.runs if run.method == method]):
                expected = [self._plain_tokens(run, tell) for run in batch]
                outputs = self._generate(llm, batch)
                tell(len(batch), method)
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

    def _speculating(self, method: str) -> LLM:
        ceiling = {"num_speculative_tokens": self._max_depth, "num_branches": max(BRANCHES)}
        return self._llm.with_speculation({**self._methods[method], **ceiling, "adaptive": False})

    def _generate(self, llm: LLM, runs: Sequence[Run]) -> list[CompletionOutput]:
        answers = llm.generate(
            [self._prompts[run.prompt] for run in runs],
            [self._params(run) for run in runs],
            speculation=[
                {"num_speculative_tokens": run.depth, "num_branches": run.num_branches}
                for run in runs
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


def _batches(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    for first in range(0, len(runs), BATCH):
        yield runs[first : first + BATCH]


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
