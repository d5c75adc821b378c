"""Threads that join a pass.

They are plain Python threads: the pass itself runs outside Python's lock, and since a pass does
not wait for threads that have not come, waking them costs it nothing.
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

Calls = SimpleQueue[bool]  # False: no more will come


class _Counters:
    """Those of so many steps, and where they lie; zero between passes."""

    def __init__(self, num_steps: int) -> None:
        self._memory = np.zeros(num_steps * COUNTER_BYTES // 8, np.int64)
        self.num_steps = num_steps
        self.address = address_of(self._memory)


class _Scratch:
    """Memory of each thread's own, and where it lies."""

    def __init__(self, num_threads: int, num_bytes: int) -> None:
        self._memory = np.empty((num_threads, num_bytes), np.uint8)
        self.num_bytes = num_bytes  # for each
        self.addresses: list[int] = [row.ctypes.data for row in self._memory]


class Workers:
    """The threads of one kernel set. One pass at a time; callers are queued.

    A pass that is begun and not finished gives way to any other. What it works on is held until
    then, by the threads, too: nothing that is raised elsewhere takes memory away from them.
    """

    def __init__(self, entry: Callable[[str], Compiled], num_threads: int) -> None:
        self.num_threads: Final = num_threads
        names = ("run_pass", "open_pass", "end_pass", "drop_pass")
        self._run, self._open, self._end, self._drop = (entry(name).call for name in names)
        self._is_begun = False
        self._held: list[Any] = []  # what is begun works on these
        self._prepared: npt.NDArray[np.int64] | None = None  # the steps of the control block
        self._control = np.zeros(SCRATCHES + num_threads, np.int64)
        self._control[CLOSED] = 1
        # Steps, their number, counters and threads, nothing else, then each thread's scratch.
        fields = struct.Struct(f"4q{8 * (SCRATCHES - STEPS - 4)}x{num_threads}q")
        self._write = partial(fields.pack_into, self._control.data, 8 * STEPS)
        self._fields = self._control.data
        self._address: int = self._control.ctypes.data
        self._counters = _Counters(0)
        self._scratch = _Scratch(num_threads, 0)
        self._lock = threading.RLock()  # garbage may be collected in here, and drop a pass
        self._calls: list[Calls] = [SimpleQueue() for _ in range(1, num_threads)]
        for idx, calls in enumerate(self._calls, start=1):
            args = (entry("join_pass"), self._control, idx, calls, self._held)
            threading.Thread(target=_serve, args=args, daemon=True, name="forerun-cpu").start()
        weakref.finalize(self, _dismiss, self._lock, self._drop, self._control, self._calls)
        _ALL.add(self)

    @property
    def share_of_others(self) -> float:
        """Of the work, while the owner of a pass is away."""
        return 1 - 1 / self.num_threads

    def run(self, steps: npt.NDArray[np.int64], scratch_bytes: int) -> None:
        """Run the steps [num_steps, STEP_FIELDS] to their end."""
        with self._lock:
            self._call(steps, scratch_bytes)
            self._run(self._address, 0)

    def begin(self, steps: npt.NDArray[np.int64], scratch_bytes: int, held: Sequence[Any]) -> None:
        """Let all other threads run them, while this one sees to other things; they work on what is
        `held`."""
        with self._lock:
            self._call(steps, scratch_bytes)
            self._held[:] = (steps, self._counters, self._scratch, *held)
            self._is_begun = True
            self._open(self._address, 0)
            self._is_begun = True  # also if garbage was collected meanwhile

    def finish(self, following: int, scratch_bytes: int) -> bool:
        """Run what was begun to its end, and begin what lies at `following` (`Following`), if there
        is scratch for it. False: it was dropped meanwhile."""
        with self._lock:
            if not self._is_begun:
                return False
            has_scratch = self._scratch.num_bytes >= scratch_bytes
            self._fields[FOLLOWING] = following if has_scratch else 0
            self._end(self._address, 0)
            is_whole = self._fields[IS_WHOLE] != 0
            self._is_begun = self._fields[FOLLOWING] != 0  # unless that was dropped already
            if self._is_begun:
                self._wake()
            else:
                self._held.clear()
            return is_whole

    def drop(self) -> None:
        """Have what was begun given up, if it still is."""
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
            if calls.empty():  # else its thread joined the last pass without being called
                calls.put(True)

    def _prepare(self, steps: npt.NDArray[np.int64], scratch_bytes: int) -> None:
        self._prepared = None
        num_steps, num_fields = steps.shape
        assert num_fields == STEP_FIELDS, steps.shape
        if self._counters.num_steps < num_steps:
            self._counters = _Counters(num_steps)
        if self._scratch.num_bytes < scratch_bytes:
            self._scratch = _Scratch(self.num_threads, 2 * scratch_bytes)
        # All addresses: after an exception in here, old ones may be of freed memory.
        fields = (address_of(steps), num_steps, self._counters.address, self.num_threads)
        self._write(*fields, *self._scratch.addresses)
        self._prepared = steps


_ALL: Final = weakref.WeakSet[Workers]()


def _drop_all() -> None:
    for workers in list(_ALL):
        workers.drop()


if hasattr(os, "register_at_fork"):  # a process that is forked off has none of the threads
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
