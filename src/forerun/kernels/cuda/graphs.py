"""Whole passes as recorded CUDA graphs, one recording for each size that came along.

A pass is filled up to the next size in `SIZES`; the rows that fill it read and write the dump slot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from forerun.kernels.base import Body
from forerun.kernels.cuda.asked_draws import Draws
from forerun.kernels.cuda.batch import CudaBatch, Inputs, bucket
from forerun.kernels.cuda.drawing import Best, Drawing
from forerun.kernels.cuda.given import HandedOut
from forerun.kernels.cuda.recording import Recording, cuts_for
from forerun.kernels.cuda.store import KVStore
from forerun.kernels.cuda.values import Rows
from forerun.kernels.scores import Scores

SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
_KEY_SLOTS: Final = (1 << 14, 1 << 17, 1 << 20)
_MAX_KEPT: Final = 96

Key = tuple[Body, int, int, int, int]


@dataclass(frozen=True)
class _Kept:
    recording: Recording
    inputs: Inputs
    logits: torch.Tensor
    best: Best
    handed_out: HandedOut | None
    num_embeddings: int


@dataclass
class Stopwatch:
    """Replays each recorded pass some more times; a pass over the same batch changes nothing."""

    num_replays: int
    seconds: list[float] = field(default_factory=list)  # of one pass on the device, each

    def time(self, recording: Recording) -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(self.num_replays):
            recording.replay()
        end.record()
        end.synchronize()
        self.seconds.append(begin.elapsed_time(end) / 1e3 / self.num_replays)


class Graphs:
    """The graphs over a store used most recently. They go when the store goes."""

    def __init__(self, num_splits: Callable[[int], int], drawing: Drawing) -> None:
        self._drawing = drawing
        self._num_splits = num_splits  # of so many keys
        self.stopwatch: Stopwatch | None = None
        self._lock = Lock()  # graphs share memory: one at a time, until its result is copied
        self._kept: WeakKeyDictionary[KVStore, OrderedDict[Key, _Kept]] = WeakKeyDictionary()
        self._pool: Any = None
        self._stream: Any = None  # where passes are recorded

    def run(self, body: Body, batch: CudaBatch, store: KVStore, draws: Draws) -> Scores:
        """The tokens of this pass that `draws` describe, and the logits of all other rows."""
        sizes = (
            bucket(len(batch.plan), SIZES),
            bucket(len(batch.plan.wanted), (0, *SIZES)),
            bucket(batch.num_key_slots, _KEY_SLOTS),
        )
        num_tokens, num_wanted, num_key_slots = sizes
        with self._lock:
            if num_tokens is None or num_wanted is None or num_key_slots is None:
                return launched(body, batch, store, self._drawing, draws)
            num_splits = self._num_splits(batch.most_keys)
            key = (body, num_tokens, num_wanted, num_splits, num_key_slots)
            kept = self._kept.setdefault(store, OrderedDict())
            if key not in kept:
                return self._record(kept, key, batch, store, draws)
            kept.move_to_end(key)
            entry = kept[key]
            batch.check(entry.num_embeddings)
            entry.inputs.send(batch, store.dump_slot)
            entry.recording.replay()
            batch.handed_out = entry.handed_out
            if self.stopwatch is not None:
                self.stopwatch.time(entry.recording)
            return self._drawing.finish(entry.logits, entry.best, batch.num_wanted, draws)

    def _record(
        self,
        kept: OrderedDict[Key, _Kept],
        key: Key,
        batch: CudaBatch,
        store: KVStore,
        draws: Draws,
    ) -> Scores:
        """Run it once as it is, which compiles what is new, then keep it as a graph."""
        body, num_tokens, num_wanted, num_splits, num_key_slots = key
        head_dim = batch.shape.head_dim
        inputs = Inputs(num_tokens, num_wanted, head_dim, num_key_slots, batch.device)
        inputs.send(batch, store.dump_slot)
        batch.placed, batch.num_splits = inputs, num_splits
        found = launched(body, batch, store, self._drawing, draws)
        eager = batch.handed_out
        if self._stream is None:
            self._stream = torch.cuda.Stream(batch.device)
        if not any(self._kept.values()):  # memory that no graph shares any more cannot be joined
            torch.cuda.empty_cache()
            self._pool = torch.cuda.graph_pool_handle()
        batch.recording = recording = Recording(self._pool, cuts_for(store.num_layers))

        tokens = self._drawing.new_tokens(num_wanted, batch.device)

        def work() -> tuple[torch.Tensor, Best]:
            logits = logits_of(body, batch, store)
            return logits, self._drawing.best(logits, tokens)

        logits, best = recording.record(work, self._stream)
        kept[key] = _Kept(recording, inputs, logits, best, batch.handed_out, batch.num_embeddings)
        if len(kept) > _MAX_KEPT:
            kept.popitem(last=False)
        batch.handed_out = eager
        return found


def launched(
    body: Body, batch: CudaBatch, store: KVStore, drawing: Drawing, draws: Draws
) -> Scores:
    """A pass whose kernels are launched one by one."""
    logits = logits_of(body, batch, store)
    return drawing.finish(logits, drawing.best(logits), batch.num_wanted, draws)


def logits_of(body: Body, batch: CudaBatch, store: KVStore) -> torch.Tensor:
    batch.tapped.clear()
    rows: Any = body(batch, store)
    assert isinstance(rows, Rows), rows
    batch.handed_out = HandedOut.of(batch.tapped) if batch.tapped else None
    return rows.data
