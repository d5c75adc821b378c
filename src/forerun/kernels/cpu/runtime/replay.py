"""Passes kept for the next batch of the same size: recording is paid once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.kernels.base import Body
from forerun.kernels.cpu.attention.kv_store import KVStore
from forerun.kernels.cpu.runtime.batch import CpuBatch
from forerun.kernels.cpu.runtime.drawn import DrawnRows, Result
from forerun.kernels.cpu.runtime.program import KeptProgram, Recording
from forerun.kernels.cpu.runtime.workers import Workers
from forerun.kernels.scores import Scores

MAX_TOKENS: Final = 32  # a longer pass takes so long that recording does not show
_MAX_KEPT: Final = 96

Key = tuple[Body, int, int, bool, Result]
Kept = OrderedDict[Key, tuple[Recording, CpuBatch]]


class Begun(NamedTuple):
    """A pass that was begun before it was asked for."""

    passes: Kept  # of its store
    key: Key
    batch: CpuBatch
    recording: Recording
    first_batch: CpuBatch  # whose addresses that has


class Replays:
    """The passes over a store used most recently, each with the batch whose addresses it has.

    The store keeps them, so they must not hold it.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._lock = Lock()  # recordings share buffers: one at a time, until its result is copied
        self._begun: Begun | None = None

    def run(self, body: Body, batch: CpuBatch, store: KVStore) -> npt.NDArray[np.float32]:
        with self._lock:
            return self._run(body, batch, store)[0]

    def draw(self, body: Body, batch: CpuBatch, store: KVStore) -> Scores:
        """What `batch` draws; the logits go with the next pass, which is begun if it is known."""
        with self._lock:
            following = self._following(body, batch, store)
            logits, drawn = self._run(body, batch, store)
            assert drawn is not None
            scores = drawn.scores(logits)
            if following is not None and (tokens := scores.all_tokens) is not None:
                self._begin(following, tokens)
            return scores

    def _run(
        self, body: Body, batch: CpuBatch, store: KVStore
    ) -> tuple[npt.NDArray[np.float32], DrawnRows | None]:
        kept: Kept = store.passes
        key = batch.key(body)
        begun, self._begun = self._begun, None
        if begun is not None:
            is_it = begun.passes is kept and begun.key == key and begun.batch.is_like(batch)
            if is_it and self._workers.finish():
                result, batch.taps = begun.recording.brought()
                return result, begun.recording.drawn
            self._workers.drop()
        found = kept.get(key)
        if found is None:
            return self._record(kept, key, batch, store), batch.program.drawn
        kept.move_to_end(key)
        recording, first_batch = found
        first_batch.take_in(batch)
        result, batch.taps = recording.run(self._workers, batch.scratch_bytes)
        return result, recording.drawn

    def _following(self, body: Body, batch: CpuBatch, store: KVStore) -> Begun | None:
        """All of the next pass but its tokens: this may be done while others work."""
        following = batch.following()
        if following is None:
            return None
        key, kept = following.key(body), store.passes
        return Begun(kept, key, following, *kept[key]) if key in kept else None

    def _begin(self, following: Begun, tokens: Sequence[int]) -> None:
        following.batch.set_tokens(tokens)
        following.first_batch.take_in(following.batch)
        self._workers.begin(following.recording.steps, following.batch.scratch_bytes)
        self._begun = following

    def kept(self, store: KVStore, num_tokens: int) -> tuple[Recording, int]:
        """The pass over so many tokens of `store` that ran last, and the scratch it needs."""
        found = [one for key, one in store.passes.items() if key[1] == num_tokens]
        recording, batch = found[-1]
        return recording, batch.scratch_bytes

    def _record(
        self, kept: Kept, key: Key, batch: CpuBatch, store: KVStore
    ) -> npt.NDArray[np.float32]:
        result = key[0](batch, store)
        assert isinstance(batch.program, KeptProgram), batch.program
        batch.taps = batch.program.taps
        recording = batch.program.take_recording()
        if recording is not None:
            kept[key] = recording.without(store), batch
            if len(kept) > _MAX_KEPT:
                kept.popitem(last=False)
        return result
