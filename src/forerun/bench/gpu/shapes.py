"""Whole passes of models of known shapes: their time, and whether a batch changes bits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from forerun.bench.gpu.synthetic import SHAPES, SyntheticCheckpoint
from forerun.cache import BlockTable
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.types import Span

if TYPE_CHECKING:
    from forerun.kernels.cuda import CudaKernels

CONTEXT_LEN: Final = 128
# (requests, tokens of each): plain, verifications of a chain, batches.
PASSES: Final = (*((1, num) for num in (1, 2, 3, 4, 5, 6, 8)), (16, 1), (32, 1))
_NUM_REPEATS: Final = 5
_NUM_REPLAYS: Final = 20
_ROOM: Final = 16  # tokens beyond the context, for each request


def measure_shape(
    kernels: CudaKernels, name: str, read_bytes_per_second: float, spoiled: float = 0.0
) -> tuple[ShapeBench, dict[str, Any]]:
    """Return a bench and its record: the seconds of each of `PASSES`, on the device and in all.

    `spoiled` is as in `SyntheticCheckpoint`. Time single kernels only at the very end: torch's
    profiler may slow down all launches from then on.
    """
    checkpoint = SyntheticCheckpoint(SHAPES[name], spoiled)
    began = time.perf_counter()
    model = LlamaModel.load(checkpoint, kernels)
    loaded = time.perf_counter() - began
    bench = ShapeBench(model, kernels)
    num_bytes = checkpoint.num_read * kernels.weight_size
    floor = num_bytes / read_bytes_per_second
    passes = [bench.time_pass(*sizes) for sizes in PASSES]
    for found in passes:
        found["share_of_floor"] = floor / found["device_s"]
    return bench, {
        "shape": name,
        "weight_bytes": num_bytes,
        "floor_s": floor,
        "load_s": loaded,
        "passes": passes,
        "kernels": {},
        "num_rows_compared": len(bench.alone),
        "num_rows_different": bench.num_different(),
    }


class ShapeBench:
    """Requests with a context each, to time passes over their next tokens."""

    def __init__(self, model: LlamaModel, kernels: CudaKernels) -> None:
        self.model, self._kernels = model, kernels
        num_requests = max(requests for requests, _ in PASSES)
        rng = np.random.default_rng(0)
        self._texts = rng.integers(0, model.config.vocab_size, (num_requests, CONTEXT_LEN + _ROOM))
        pages = -(-(CONTEXT_LEN + _ROOM) // 16)
        self._cache = model.new_cache(num_requests * pages, 16)
        self._tables = [self._cache.new_table() for _ in range(num_requests)]
        for table, text in zip(self._tables, self._texts, strict=True):
            self._forward([table], [text[:CONTEXT_LEN].tolist()])
        self.alone = self._alone()

    def _forward(
        self, tables: Sequence[BlockTable], tokens: Sequence[Sequence[int]]
    ) -> npt.NDArray[np.float32]:
        spans = [
            Span.all_wanted(t.reserve(len(new)), new) for t, new in zip(tables, tokens, strict=True)
        ]
        return self.model.forward(Plan.build(zip(spans, tables, strict=True)), self._cache)

    def _next(self, num_requests: int, num_tokens: int) -> npt.NDArray[np.float32]:
        """Return the logits of a pass over each request's next tokens, then forget those tokens."""
        tables = self._tables[:num_requests]
        texts = self._texts[:num_requests, CONTEXT_LEN : CONTEXT_LEN + num_tokens]
        logits = self._forward(tables, texts.tolist())
        for table in tables:
            table.truncate_to(CONTEXT_LEN)
        return logits

    def time_pass(self, num_requests: int, num_tokens: int) -> dict[str, Any]:
        self._next(num_requests, num_tokens)  # records the pass
        whole = []
        for _ in range(_NUM_REPEATS):
            began = time.perf_counter()
            self._next(num_requests, num_tokens)
            whole.append(time.perf_counter() - began)
        with self._kernels.timed(_NUM_REPLAYS) as seconds:
            for _ in range(_NUM_REPEATS):
                self._next(num_requests, num_tokens)
        return {
            "num_requests": num_requests,
            "num_tokens": num_tokens,
            "device_s": median(seconds),
            "forward_s": median(whole),  # plan, transfers and logits on the host included
        }

    def kernel_times(self) -> dict[str, dict[str, float]]:
        """Return the times of the kernels of a plain pass, which is recorded already."""
        return self._kernels.kernel_times(lambda: self._next(1, 1))

    def _alone(self) -> list[npt.NDArray[np.float32]]:
        """Return logits of one-token passes: the first request's next tokens, the others' first."""
        table, text = self._tables[0], self._texts[0, CONTEXT_LEN:]
        rows = [self._forward([table], [[int(token)]])[0] for token in text[:8]]
        table.truncate_to(CONTEXT_LEN)
        for table, text in list(zip(self._tables, self._texts, strict=True))[1:]:
            rows.append(self._forward([table], [[int(text[CONTEXT_LEN])]])[0])
            table.truncate_to(CONTEXT_LEN)
        return rows

    def num_different(self) -> int:
        """Count the rows of a verification and of the largest batch that differ from `alone`."""
        verified = self._next(1, 8)
        batch = self._next(len(self._tables), 1)
        expected = np.stack([*self.alone[:8], self.alone[0], *self.alone[8:]])
        found = np.concatenate((verified, batch))
        return int((found.view(np.uint32) != expected.view(np.uint32)).any(axis=1).sum())
