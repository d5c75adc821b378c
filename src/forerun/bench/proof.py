"""The promise of bits, cell by cell: with speculation and without, the very same tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from forerun.bench.covering import covering_cells
from forerun.bench.named_prompts import NamedPrompt
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

_BATCH: Final = 8  # cells that share a drafter run side by side: a batch must not matter either


@dataclass(frozen=True)
class Cell:
    """One run of the sample and what came of it."""

    prompt: str
    method: str
    num_branches: int
    sampling: str
    depth: int
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
    """A covering sample of prompts × drafters × shapes × sampling × depths, ready to run."""

    def __init__(
        self,
        llm: LLM,
        prompts: Sequence[NamedPrompt],
        methods: dict[str, dict[str, Any]],
        max_depth: int,
        num_tokens: int,
        seed: int,
        min_cells: int = 0,
    ) -> None:
        self._plain = llm.with_speculation(None)
        self._llm = llm
        self._prompts = {prompt.name: prompt for prompt in prompts}
        self._methods = methods
        self._num_tokens = num_tokens
        self._seed = seed
        factors: dict[str, Sequence[Any]] = {
            "prompt": list(self._prompts),
            "method": list(methods),
            "num_branches": [1, 2],
            "sampling": list(SAMPLING),
            "depth": list(range(1, max_depth + 1)),
        }
        self.cells = covering_cells(factors, seed, min_cells)

    def run(self, on_progress: Callable[[int], None] = lambda _: None) -> Iterator[Cell]:
        """Run every cell; first what plain decoding says, then each drafter."""
        expected = self._plain_tokens(on_progress)
        keys = ("method", "num_branches", "depth")
        ordered = sorted(self.cells, key=lambda cell: [cell[key] for key in keys])
        for shared, group in itertools.groupby(ordered, lambda cell: [cell[key] for key in keys]):
            llm = self._speculating(*shared)
            for batch in _batches(group):
                outputs = self._generate(llm, batch)
                on_progress(len(batch))
                for cell, output in zip(batch, outputs, strict=True):
                    yield _judged(cell, output, expected[cell["prompt"], cell["sampling"]])

    @property
    def num_runs(self) -> int:
        """All runs, plain ones included."""
        return len(self.cells) + len(self._plain_cells())

    def _plain_cells(self) -> list[dict[str, Any]]:
        pairs = sorted({(cell["prompt"], cell["sampling"]) for cell in self.cells})
        return [{"prompt": prompt, "sampling": sampling} for prompt, sampling in pairs]

    def _plain_tokens(
        self, on_progress: Callable[[int], None]
    ) -> dict[tuple[str, str], tuple[int, ...]]:
        """Each prompt alone, without speculation."""
        found = {}
        for cell in self._plain_cells():
            (output,) = self._generate(self._plain, [cell])
            found[cell["prompt"], cell["sampling"]] = output.token_ids
            on_progress(1)
        return found

    def _speculating(self, method: str, num_branches: int, depth: int) -> LLM:
        options = {"num_branches": num_branches, "num_speculative_tokens": depth, "adaptive": False}
        return self._llm.with_speculation({**self._methods[method], **options})

    def _generate(self, llm: LLM, cells: Sequence[dict[str, Any]]) -> list[CompletionOutput]:
        messages = [
            [{"role": "user", "content": self._prompts[cell["prompt"]].text}] for cell in cells
        ]
        params = [
            SamplingParams(
                max_tokens=self._num_tokens,
                ignore_eos=True,
                seed=self._seed,
                **SAMPLING[cell["sampling"]],
            )
            for cell in cells
        ]
        return [result.outputs[0] for result in llm.chat(messages, params)]


def _batches(cells: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    remaining = iter(cells)
    while batch := list(itertools.islice(remaining, _BATCH)):
        yield batch


def _judged(cell: dict[str, Any], output: CompletionOutput, expected: tuple[int, ...]) -> Cell:
    differing = (
        idx
        for idx, (got, want) in enumerate(
            itertools.zip_longest(output.token_ids, expected, fillvalue=None)
        )
        if got != want
    )
    return Cell(
        **cell,
        num_tokens=len(output.token_ids),
        target_passes=output.stats["target_passes"],
        draft_tokens=output.stats["draft_tokens"],
        accepted_tokens=output.stats["accepted_tokens"],
        first_difference=next(differing, None),
    )


def as_record(cells: Sequence[Cell]) -> dict[str, Any]:
    """Figures over all cells, then every cell."""
    return {
        "num_cells": len(cells),
        "num_different": sum(cell.first_difference is not None for cell in cells),
        "num_tokens": sum(cell.num_tokens for cell in cells),
        "target_passes": sum(cell.target_passes for cell in cells),
        "accepted_tokens": sum(cell.accepted_tokens for cell in cells),
        "cells": [asdict(cell) for cell in cells],
    }
