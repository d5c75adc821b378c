"""Recorded passes, replayed for later batches of the same size, so that recording is paid once."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.kernels.base import Body
from forerun.kernels.cpu.attention.kv_store import KVStore
from forerun.kernels.cpu.runtime.batch import CpuBatch
from forerun.kernels.cpu.runtime.drawn import Result
from forerun.kernels.cpu.runtime.following import Following
from forerun.kernels.cpu.runtime.program import KeptProgram, Recording
from forerun.kernels.cpu.runtime.workers import Workers
from forerun.kernels.scores import Scores

MAX_TOKENS: Final = 32  # longer passes take so long that recording them again does not matter
_MAX_KEPT: Final = 96

Key = tuple[Body, int, int, bool, Result]
Kept = OrderedDict[Key, tuple[Recording, CpuBatch]]


class Begun(NamedTuple):
    """A pass that was begun before the engine asked for it."""

    passes: Kept  # its store's recordings
    key: Key
    following: Following
    at: float  # when it was begun, by `perf_counter`

    def is_for(self, passes: Kept, key: Key, batch: CpuBatch) -> bool:
        is_same = self.passes is passes and self.key == key
        following = self.following
        known = (following.numbers, following.noise, following.tokens)
        return is_same and batch.is_like(*known)


class Replays:
    """Records passes and replays them.

    A store keeps its most recently used recordings, each with the batch whose addresses the steps
    have. So recordings must not refer to the store.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        # Recordings share buffers: one runs at a time, until its result is copied.
        self._lock = Lock()
        self._begun: Begun | None = None
        self.head_start = 0.0  # see `Kernels.head_start`

    def run(self, body: Body, batch: CpuBatch, store: KVStore) -> npt.NDArray[np.float32]:
        with self._lock:
            self._give_up()
            kept, key = store.passes, batch.key(body)
            if key not in kept:
                return self._record(kept, key, batch, store)
            kept.move_to_end(key)
            recording = _taken_in(kept, key, batch)
            result, batch.taps = recording.run(self._workers, batch.scratch_bytes)
            return result

    def draw(self, body: Body, batch: CpuBatch, store: KVStore) -> Scores:
        """Run a pass and return the tokens that `batch` draws. The next pass overwrites the logits.
        If all of the next pass but its tokens is known, begin it."""
        with self._lock:
            kept, key = store.passes, batch.key(body)
            self.head_start = 0.0
            is_begun = self._begun is not None and self._begun.is_for(kept, key, batch)
            if not is_begun:
                self._give_up()
            if key not in kept:
                logits, drawn = self._record(kept, key, batch, store), batch.program.drawn
                assert drawn is not None
                return drawn.scores(logits)
            kept.move_to_end(key)
            if not is_begun:
                recording = _taken_in(kept, key, batch)
                if not batch.is_followed:
                    logits, batch.taps = recording.run(self._workers, batch.scratch_bytes)
                    assert recording.drawn is not None
                    return recording.drawn.scores(logits)
                self._workers.begin(recording.steps, batch.scratch_bytes, (*kept[key], *store.rows))
            return self._end(key, batch, store)

    def _end(self, key: Key, batch: CpuBatch, store: KVStore) -> Scores:
        """End a pass that is under way; before this thread joins it, prepare the next one."""
        kept: Kept = store.passes
        (recording, first_batch), begun, self._begun = kept[key], self._begun, None
        drawn = recording.drawn
        assert drawn is not None
        following = Following(batch, recording, first_batch) if batch.is_followed else None
        address, needed = (following.address, following.scratch_bytes) if following else (0, 0)
        if begun is not None:
            self.head_start = self._workers.share_of_others * (perf_counter() - begun.at)
        while not self._workers.finish(address, needed):  # it was dropped meanwhile: begin again
            self.head_start = 0.0
            self._workers.begin(recording.steps, batch.scratch_bytes, (*kept[key], *store.rows))
        if following is None or not following.is_begun:
            logits, batch.taps = recording.brought()
            return drawn.scores(logits)
        batch.taps = following.taps
        self._begun = Begun(kept, key, following, perf_counter())
        return Scores([None] * len(following.tokens), following.tokens)

    def _give_up(self) -> None:
        """Drop the pass that was begun, if any, so that no thread reads a batch's integers."""
        self._workers.drop()
        self._begun = None

    def kept(self, store: KVStore, num_tokens: int) -> tuple[Recording, int]:
        """Return the last pass over `num_tokens` tokens of `store`, and the scratch it needs."""
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
            batch.forget_plan()
            kept[key] = recording.without(store), batch
            if len(kept) > _MAX_KEPT:
                kept.popitem(last=False)
        return result


def _taken_in(kept: Kept, key: Key, batch: CpuBatch) -> Recording:
    recording, first_batch = kept[key]
    first_batch.take_in(batch)
    return recording
