"""One pass as a few CUDA graphs in a row.

The host submits a graph as a whole before the device begins it, so the first one is short: the
device works on it while the host submits the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

if TYPE_CHECKING:
    from forerun.kernels.cuda.batch import CudaBatch

Result = TypeVar("Result")


class Replay(Protocol):
    """A pass that can be run again, over what its inputs contain then."""

    def replay(self) -> None: ...


class Recorder(Protocol):
    """Records passes, to be replayed; `is_first`: no earlier recording exists any more."""

    def record(
        self, work: Callable[[], Result], batch: CudaBatch, num_layers: int, *, is_first: bool
    ) -> tuple[Replay, Result]: ...


class GraphRecorder:
    """Records passes as CUDA graphs."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._stream: Any = None

    def record(
        self, work: Callable[[], Result], batch: CudaBatch, num_layers: int, *, is_first: bool
    ) -> tuple[Replay, Result]:
        if self._stream is None:
            self._stream = torch.cuda.Stream(batch.device)
        if is_first:  # a pool that no graph uses any more cannot be reused
            torch.cuda.empty_cache()
            self._pool = torch.cuda.graph_pool_handle()
        batch.recording = recording = Recording(self._pool, cuts_for(num_layers))
        return recording, recording.record(work, self._stream)


class NothingRecorded:
    """Calls the work and records nothing: for passes that only have their kernels compiled."""

    def record(self, work: Callable[[], Result], *_: object, **__: object) -> tuple[Replay, Result]:
        return self, work()

    def replay(self) -> None:
        """Do nothing."""


class Recording:
    """Graphs that share memory, in the order of their replay."""

    def __init__(self, pool: Any, cuts: Collection[int]) -> None:
        self._pool = pool
        self._cuts = cuts  # layers before which a new graph begins
        self._graphs: list[Any] = []  # torch.cuda.CUDAGraph

    def record(self, work: Callable[[], Result], stream: Any) -> Result:
        """Record what `work` launches, without running it, and return what `work` returns.

        `torch.cuda.graph` would empty torch's cache and collect garbage first, for 0.2 s.
        """
        torch.cuda.synchronize(stream.device)
        with torch.cuda.stream(stream):
            self._begin()
            try:
                return work()
            finally:
                self._graphs[-1].capture_end()

    def at_layer(self, idx: int) -> None:
        if idx in self._cuts:
            self._graphs[-1].capture_end()
            self._begin()

    def _begin(self) -> None:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        self._graphs.append(graph)

    def replay(self) -> None:
        for graph in self._graphs:
            graph.replay()


def cuts_for(num_layers: int) -> frozenset[int]:
    return frozenset({num_layers // 10, num_layers * 2 // 5} - {0})
