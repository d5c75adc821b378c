"""Passes that are begun before they are asked for, on a processor: with Triton's interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from forerun.engine import LLM
from forerun.kernels.cuda import CudaKernels
from forerun.kernels.cuda.batch import CudaBatch
from forerun.types import SamplingParams
from tests.tiny_model import write_tiny_model

PROMPTS = ("ab", "b")
NUM_TOKENS = (6, 3)
SAMPLINGS: tuple[dict[str, Any], ...] = ({"temperature": 0.0}, {"temperature": 1.0, "seed": 3})


class Again:
    """Does the work once more, and puts what comes out where it was the first time."""

    def __init__(self) -> None:
        self.num_replays = 0

    def record(
        self, work: Callable[[], Any], batch: CudaBatch, num_layers: int, *, is_first: bool
    ) -> tuple[_Work, Any]:
        logits, best = work()
        return _Work(self, work, logits, best), (logits, best)


class _Work:
    def __init__(self, owner: Again, work: Callable[[], Any], logits: torch.Tensor, best: Any):
        self._owner, self._work, self._logits, self._best = owner, work, logits, best

    def replay(self) -> None:
        self._owner.num_replays += 1
        logits, best = self._work()
        self._logits.copy_(logits)
        self._best.tops.copy_(best.tops)
        self._best.counts.copy_(best.counts)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_tiny_model(Path(folder), num_layers=1, num_heads=2, num_kv_heads=1, hidden_size=24)
        plain = loaded(path, CudaKernels("float32", device="cpu"))
        again = Again()
        early = loaded(path, CudaKernels("float32", device="cpu", recorder=again))
        assert early.model.kernels.begins_early
        for sampling in SAMPLINGS:
            expected = answers(plain, sampling)
            for _ in range(2):  # sizes are recorded, then replayed
                again.num_replays = 0
                assert answers(early, sampling) == expected, sampling
            print(again.num_replays)


def loaded(path: Path, kernels: CudaKernels) -> LLM:
    return LLM(path, kernels=kernels, max_num_seqs=4, max_model_len=64, speculative_config=None)


def answers(llm: LLM, sampling: dict[str, Any]) -> list[tuple[int, ...]]:
    """Of different lengths."""
    params = [
        SamplingParams(max_tokens=num, ignore_eos=True, **sampling) for num in NUM_TOKENS
    ]
    return [tuple(out.outputs[0].token_ids) for out in llm.generate(list(PROMPTS), params)]


if __name__ == "__main__":
    main()
