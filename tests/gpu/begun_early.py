"""Passes begun before they are asked for, run on a CPU by Triton's interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from forerun.engine import LLM
from forerun.kernels.cuda import CudaKernels
from forerun.kernels.cuda.batch import CudaBatch
from forerun.kernels.cuda.drawing import Best
from forerun.types import SamplingParams
from forerun.types import StructuredOutputsParams as Fitting
from tests.tiny_model import write_tiny_model

PROMPTS = ("ab", "b")
NUM_TOKENS = (6, 3)
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 0.0, "allowed_token_ids": tuple(range(2, 30, 3)), "min_tokens": 2},
    {"temperature": 1.0, "seed": 3, "repetition_penalty": 1.5, "frequency_penalty": 0.5},
    {"temperature": 0.0, "structured_outputs": Fitting(regex="(ab|c){9}")},
    {"temperature": 1.0, "seed": 5, "structured_outputs": Fitting(regex="[a-m]{9}")},
)


class Again:
    """Stands in for CUDA graphs: a replay does the work again and stores the results in place."""

    def __init__(self) -> None:
        self.were_early: list[bool] = []  # of each pass, in order

    def record(
        self, work: Callable[[], Any], batch: CudaBatch, *_: object, **__: object
    ) -> tuple[Work, Any]:
        found = work()
        return Work(self, work, batch, *found), found


@dataclass
class Work:
    owner: Again
    work: Callable[[], Any]
    batch: CudaBatch
    logits: torch.Tensor
    best: Best | None

    def replay(self) -> None:
        self.owner.were_early.append(bool(self.batch.inputs().tokens[0] < 0))
        logits, best = self.work()
        self.logits.copy_(logits)
        if self.best is not None:
            self.best.tops.copy_(best.tops)
            self.best.counts.copy_(best.counts)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_tiny_model(
            Path(folder), num_layers=1, num_heads=2, num_kv_heads=1, hidden_size=24
        )
        plain = loaded(path, CudaKernels("float32", device="cpu"))
        again = Again()
        kernels = CudaKernels("float32", device="cpu", recorder=again)
        early = loaded(path, kernels)
        for sampling in SAMPLINGS:
            expected = answers(plain, sampling)
            for _ in range(2):  # sizes are recorded, then replayed
                again.were_early = []
                assert answers(early, sampling) == expected, sampling
            assert again.were_early == [False, *[True] * (max(NUM_TOKENS) - 1)]
        greedy = SAMPLINGS[0]
        last = answers(plain, greedy)[1][1]  # where it ends, the next pass is in flight
        cut_short = {**greedy, "stop_token_ids": (last,)}
        assert answers(early, cut_short) == answers(plain, cut_short)
        kernels.drawing.margin = 60.0  # every row with noise is left to the host
        for sampling in SAMPLINGS[1::2]:
            assert answers(early, sampling) == answers(plain, sampling)
        for sampling in SAMPLINGS[1:4:2]:
            again.were_early = []
            early.generate("ab", SamplingParams(max_tokens=16, ignore_eos=True, **sampling))
            assert len(again.were_early) <= 16 + 2 * 4, "begun for nobody ever more rarely"


def loaded(path: Path, kernels: CudaKernels) -> LLM:
    return LLM(path, kernels=kernels, max_num_seqs=4, max_model_len=64, speculative_config=None)


def answers(llm: LLM, sampling: dict[str, Any]) -> list[tuple[int, ...]]:
    """The tokens of all prompts, of different lengths."""
    params = [SamplingParams(max_tokens=num, ignore_eos=True, **sampling) for num in NUM_TOKENS]
    return [tuple(out.outputs[0].token_ids) for out in llm.generate(list(PROMPTS), params)]


if __name__ == "__main__":
    main()
