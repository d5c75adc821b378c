"""The promise of bits: speculation gives the very same tokens, checked cell by cell."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from forerun.bench.prompts.named_prompts import NamedPrompt
from forerun.bench.proof.sample import BATCH_SIZES, BRANCHES, Choices, Run, sample_runs
from forerun.drafters.heads import HeadFolder
from forerun.engine import LLM, CompletionOutput, RequestSpeculation
from forerun.errors import InvalidOption
from forerun.types import SamplingParams

SAMPLING: Final[dict[str, dict[str, Any]]] = {
    "T=0": {"temperature": 0},
    "T=0.7 top_p=0.9": {"temperature": 0.7, "top_p": 0.9},
    "T=1 min_p=0.05 repetition=1.2": {"temperature": 1.0, "min_p": 0.05, "repetition_penalty": 1.2},
    "T=0.9 bias presence=0.5 frequency=0.3": {
        "temperature": 0.9,
        "logit_bias": {30: 1.0, 198: -1.0, 284: 0.5},
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
    },
}

MOST_AT_ONCE: Final = max(BATCH_SIZES)

Tell = Callable[[int, str], None]  # called with a number of finished runs and their drafter


@dataclass(frozen=True)
class Cell(Run):
    """One run of the sample, and its result."""

    num_tokens: int
    target_passes: int
    draft_tokens: int
    accepted_tokens: int
    first_difference: int | None  # index of the first token that differs; None: identical


@dataclass(frozen=True)
class Method:
    """A drafter under test: the config of its engine, and the drafter to request from it."""

    config: Mapping[str, Any]
    drafter: str | None = None


def proof_methods(
    model: str, num_layers: int, heads: Sequence[Path] = (), phrases: Path | None = None
) -> dict[str, Method]:
    """Return all drafters for a model that also drafts for itself; single ones share an engine."""
    trained = {path: HeadFolder(path).config.kind for path in heads}
    singles = ("suffix", "prompt_lookup", "ngram_tables", "unigram", "bigram", "random")
    shared: dict[str, Any] = {
        "method": "choice",
        "methods": [*singles, "draft_model", "own_layers"],
        "model": model,
        "num_layers": num_layers,
    }
    two = ["prompt_lookup", "own_layers"]
    hybrid = {"method": "hybrid", "methods": two, "num_layers": num_layers}
    merge = {"method": "merge", "methods": ["bigram", "prompt_lookup"]}
    book = {"phrases": Method({"method": "phrases", "model": str(phrases)})} if phrases else {}
    return {name: Method(shared, name) for name in shared["methods"]} | {
        "hybrid": Method(hybrid),
        "merge": Method(merge),
        **book,
        **{
            f"{kind} ({path.name})": Method({"method": kind, "model": str(path)})
            for path, kind in trained.items()
        },
    }


class Proof:
    """A covering sample of prompts × drafters × shapes × sampling × depths, ready to run.

    Each engine is built for the deepest and widest proposals. Every request names its drafter and
    sets its own ceiling, so a batch mixes drafters, depths and branches. `run` runs the batches of
    one part of the prompts, or all.
    """

    def __init__(
        self,
        llm: LLM,
        prompts: Sequence[NamedPrompt],
        methods: Mapping[str, Method],
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
    def drafters(self) -> list[str]:
        return list(self._methods)

    @property
    def kernels(self) -> str:
        return self._llm.model.kernels.name

    @property
    def num_plain(self) -> int:
        """The number of plain runs that the others are compared with."""
        return len({(run.prompt, run.sampling) for run in self.runs})

    def run(
        self, tell: Tell = lambda *_: None, part: int = 0, num_parts: int = 1
    ) -> Iterator[Cell]:
        """Run engine by engine; a prompt's plain run, which is made alone, when first needed."""
        for config in self._configs():
            llm = self._speculating(config)
            for batch in self._batches(config, part, num_parts):
                expected = [self._plain_tokens(run, tell) for run in batch]
                outputs = self._generate(llm, batch)
                _require_all(llm)
                tell(len(batch), batch[0].method)
                yield from map(_judged, batch, outputs, expected)

    def _batches(self, config: Mapping[str, Any], part: int, num_parts: int) -> list[Sequence[Run]]:
        """Return the batches whose first prompt is in the part, so that parts share few prompts."""
        runs = [run for run in self.runs if self._methods[run.method].config is config]
        runs.sort(key=lambda run: (run.prompt, run.method))
        batches = []
        for size in BATCH_SIZES:
            fitting = [run for run in runs if run.batch_size == size]
            batches += [fitting[first : first + size] for first in range(0, len(fitting), size)]
        ranks = {name: rank for rank, name in enumerate(sorted(self._prompts))}
        return [
            [replace(run, batch_size=len(batch)) for run in batch]
            for batch in sorted(batches, key=lambda batch: batch[0].prompt)
            if ranks[batch[0].prompt] * num_parts // len(ranks) == part
        ]

    def _configs(self) -> list[Mapping[str, Any]]:
        return list({id(m.config): m.config for m in self._methods.values()}.values())

    def _plain_tokens(self, run: Run, tell: Tell) -> tuple[int, ...]:
        key = (run.prompt, run.sampling)
        if key not in self._expected:
            (answer,) = self._plain.generate(
                self._prompts[run.prompt], self._params(run), cache_salt=" · ".join(key)
            )
            self._expected[key] = answer.outputs[0].token_ids
            tell(1, "plain")
        return self._expected[key]

    def _speculating(self, config: Mapping[str, Any]) -> LLM:
        ceiling = {"num_speculative_tokens": self._max_depth, "num_branches": max(BRANCHES)}
        return self._llm.with_speculation({**config, **ceiling, "adaptive": False})

    def _generate(self, llm: LLM, runs: Sequence[Run]) -> list[CompletionOutput]:
        answers = llm.generate(
            [self._prompts[run.prompt] for run in runs],
            [self._params(run) for run in runs],
            speculation=[
                RequestSpeculation(self._methods[run.method].drafter, run.depth, run.num_branches)
                for run in runs
            ],
        )
        return [answer.outputs[0] for answer in answers]

    def _params(self, run: Run) -> SamplingParams:
        return SamplingParams(
            max_tokens=self._num_tokens, ignore_eos=True, seed=self._seed, **SAMPLING[run.sampling]
        )


def _require_all(llm: LLM) -> None:
    """Raise if a drafter was left out: without its guesses the runs would prove nothing."""
    for name, reason in llm.metrics()["left_out"].items():
        raise InvalidOption(
            f"{name} was put aside in the proof ({reason}); leave it out of --drafters, or take "
            "training.json out of its folder."
        )


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


def summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the totals over all cells."""
    return {
        "num_cells": len(cells),
        "num_different": sum(cell.first_difference is not None for cell in cells),
        "num_tokens": sum(cell.num_tokens for cell in cells),
        "target_passes": sum(cell.target_passes for cell in cells),
        "draft_tokens": sum(cell.draft_tokens for cell in cells),
        "accepted_tokens": sum(cell.accepted_tokens for cell in cells),
    }


def as_json(head: Mapping[str, Any], cells: Sequence[Cell]) -> str:
    """Return JSON with an indented head, then one line per cell."""
    opened = json.dumps({**head, **summary(cells)}, indent=1, ensure_ascii=False)[:-2]
    rows = ",\n".join("  " + json.dumps(asdict(cell), ensure_ascii=False) for cell in cells)
    return f'{opened},\n "cells": [\n{rows}\n ]\n}}'
