"""The worker threads that join a pass.

They are plain Python threads: the pass runs without Python's lock, and since it never waits for a
thread that has not joined, waking the threads does not delay it.
"""

from __future__ import annotations

import os
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.kernels.cpu.codegen.compiled import Compiled, address_of
from forerun.kernels.cpu.runtime.interpreter import (
    CLOSED,
    COUNTER_BYTES,
    FOLLOWING,
    IS_WHOLE,
    SCRATCHES,
    STEP_FIELDS,
    STEPS,
)

Calls = SimpleQueue[bool]  # True: join a pass; False: end the thread


class _Counters:
    """The counters of `num_steps` steps, which are zero between passes, and their address."""

    def __init__(self, num_steps: int) -> None:
        self._memory = np.zeros(num_steps * COUNTER_BYTES // 8, np.int64)
        self.num_steps = num_steps
        self.address = address_of(self._memory)


class _Scratch:
    """Scratch memory for each thread, and its addresses."""

    def __init__(self, num_threads: int, num_bytes: int) -> None:
        self._memory = np.empty((num_threads, num_bytes), np.uint8)
        self.num_bytes = num_bytes  # per thread
        self.addresses: list[int] = [row.ctypes.data for row in self._memory]


class Workers:
    """The threads of one kernel set. They run one pass at a time; further callers wait.

    A pass that has begun but is not finished is dropped when another is run. Until then the objects
    it works on are held, by the threads, too: no exception elsewhere can free their memory.
    """

    def __init__(self, entry: Callable[[str], Compiled], num_threads: int) -> None:
        self.num_threads: Final = num_threads
        names = ("run_pass", "open_pass", "end_pass", "drop_pass")
        self._run, self._open, self._end, self._drop = (entry(name).call for name in names)
        self._is_begun = False
        self._held: list[Any] = []  # the objects that a begun pass works on
        self._prepared: npt.NDArray[np.int64] | None = None  # the steps in the control block
        self._control = np.zeros(SCRATCHES + num_threads, np.int64)
        self._control[CLOSED] = 1
        # STEPS, NUM_STEPS, COUNTERS and NUM_THREADS; zeros up to SCRATCHES; each thread's scratch.
        fields = struct.Struct(f"4q{8 * (SCRATCHES - STEPS - 4)}x{num_threads}q")
        self._write = partial(fields.pack_into, self._control.data, 8 * STEPS)
        self._fields = self._control.data
        self._address: int = self._control.ctypes.data
        self._counters = _Counters(0)
        self._scratch = _Scratch(num_threads, 0)
        # Reentrant: garbage collection while it is held may drop a pass (a store's finalizer).
        self._lock = threading.RLock()
        self._calls: list[Calls] = [SimpleQueue() for _ in range(1, num_threads)]
        for idx, calls in enumerate(self._calls, start=1):
            args = (entry("join_pass"), self._control, idx, calls, self._held)
            threading.Thread(target=_serve, args=args, daemon=True, name="forerun-cpu").start()
        weakref.finalize(self, _dismiss, self._lock, self._drop, self._control, self._calls)
        _ALL.add(self)

    @property
    def share_of_others(self) -> float:
        """The share of the work that is done while the owner of a pass has not joined it."""
        return 1 - 1 / self.num_threads

    def run(self, steps: npt.NDArray[np.int64], scratch_bytes: int) -> None:
        """Run the steps [num_steps, STEP_FIELDS] to their end."""
        with self._lock:
            self._call(steps, scratch_bytes)
            self._run(self._address, 0)

    def begin(self, steps: npt.NDArray[np.int64], scratch_bytes: int, held: Sequence[Any]) -> None:
        """Let the other threads begin the steps, while this thread does other work. `held` are the
        objects that the steps work on."""
        with self._lock:
            self._call(steps, scratch_bytes)
            self._held[:] = (steps, self._counters, self._scratch, *held)
            self._is_begun = True
            self._open(self._address, 0)
            self._is_begun = True  # garbage collection may have reset it before the pass was opened

    def finish(self, following: int, scratch_bytes: int) -> bool:
        """Run the begun pass to its end, then begin the one described at `following` (`Following`)
        if the scratch suffices. Return False if the pass was dropped meanwhile."""
        with self._lock:
            if not self._is_begun:
                return False
            has_scratch = self._scratch.num_bytes >= scratch_bytes
            self._fields[FOLLOWING] = following if has_scratch else 0
            self._end(self._address, 0)
            is_whole = self._fields[IS_WHOLE] != 0
            self._is_begun = self._fields[FOLLOWING] != 0  # 0 also if it was dropped already
            if self._is_begun:
                self._wake()
            else:
                self._held.clear()
            return is_whole

    def drop(self) -> None:
        """Drop the begun pass, if there is one."""
        with self._lock:
            if self._is_begun:
                self._prepared = None
                self._drop(self._address, 0)
                self._fields[FOLLOWING] = 0
                self._is_begun = False
                self._held.clear()

    def _call(self, steps: npt.NDArray[np.int64], scratch_bytes: int) -> None:
        if self._is_begun:
            self.drop()
        if steps is not self._prepared or self._scratch.num_bytes < scratch_bytes:
            self._prepare(steps, scratch_bytes)
        self._wake()

    def _wake(self) -> None:
        for calls in self._calls:
            if calls.empty():  # else the thread joined the last pass before it took its call
                calls.put(True)

    def _prepare(self, steps: npt.NDArray[np.int64], scratch_bytes: int) -> None:
        self._prepared = None
        num_steps, num_fields = steps.shape
        assert num_fields == STEP_FIELDS, steps.shape
        if self._counters.num_steps < num_steps:
            self._counters = _Counters(num_steps)
        if self._scratch.num_bytes < scratch_bytes:
            self._scratch = _Scratch(self.num_threads, 2 * scratch_bytes)
        # Write all addresses: after an exception in here, old ones may point to freed memory.
        fields = (address_of(steps), num_steps, self._counters.address, self.num_threads)
        self._write(*fields, *self._scratch.addresses)
        self._prepared = steps


_ALL: Final = weakref.WeakSet[Workers]()


def _drop_all() -> None:
    for workers in list(_ALL):
        workers.drop()


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(before=_drop_all)


def _serve(
    join: Compiled,
    control: npt.NDArray[np.int64],
    thread: int,
    calls: Calls,
    _held: list[Any],
) -> None:
    address = control.ctypes.data
    while calls.get():
        join.call(address, thread)


def _dismiss(
    lock: AbstractContextManager[bool],
    drop: Callable[[int, int], None],
    control: npt.NDArray[np.int64],
    calls: list[Calls],
) -> None:
    with lock:
        if not control[CLOSED]:
            drop(control.ctypes.data, 0)
    for queue in calls:
        queue.put(False)
