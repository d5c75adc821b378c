"""Threads that join a pass.

They are plain Python threads: the pass itself runs outside Python's lock, and since a pass does
not wait for threads that have not come, waking them costs it nothing.
"""

from __future__ import annotations

import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidOption
from forerun.kernels.cpu.codegen.compiled import Compiled, address_of
from forerun.kernels.cpu.runtime.interpreter import (
    CLOSED,
    COUNTER_BYTES,
    SCRATCHES,
    STEP_FIELDS,
    STEPS,
)

Calls = SimpleQueue[bool]  # False: no more will come


def num_usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolved_num_threads(num_threads: int | None) -> int:
    """The threads to use: by default, the cores that this process may use."""
    most = num_usable_cores()
    if num_threads is None:
        return most
    if not 1 <= num_threads <= most:
        raise InvalidOption(
            f"num_threads={num_threads} is not allowed; give 1 … {most}, the cores this process "
            "may use."
        )
    return num_threads


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
    """The threads of one kernel set. One pass at a time; callers are queued."""

    def __init__(self, run: Compiled, join: Compiled, num_threads: int) -> None:
        self.num_threads: Final = num_threads
        self._call: Callable[[int, int], None] = run.call
        self._control = np.zeros(SCRATCHES + num_threads, np.int64)
        self._control[CLOSED] = 1
        # Steps, their number, counters and threads, then each thread's scratch.
        fields = struct.Struct(f"4q{8 * (SCRATCHES - STEPS - 4)}x{num_threads}q")
        self._write = partial(fields.pack_into, self._control.data, 8 * STEPS)
        self._address: int = self._control.ctypes.data
        self._counters = _Counters(0)
        self._scratch = _Scratch(num_threads, 0)
        self._lock = threading.Lock()
        self._calls: list[Calls] = [SimpleQueue() for _ in range(1, num_threads)]
        for idx, calls in enumerate(self._calls, start=1):
            args = (join, self._control, idx, calls)
            threading.Thread(target=_serve, args=args, daemon=True, name="forerun-cpu").start()
        weakref.finalize(self, _dismiss, self._calls)

    def run(self, steps: npt.NDArray[np.int64], scratch_bytes: int) -> None:
        """Run the steps [num_steps, STEP_FIELDS] to their end."""
        with self._lock:
            self._prepare(steps, scratch_bytes)
            for calls in self._calls:
                if calls.empty():  # else its thread joined the last pass without being called
                    calls.put(True)
            self._call(self._address, 0)

    @contextmanager
    def watched(self, clock: Callable[[], float]) -> Iterator[list[float]]:
        """What each run takes in compiled code, in seconds, for benchmarks."""
        call, seconds = self._call, list[float]()

        def watched_call(address: int, thread: int) -> None:
            began = clock()
            call(address, thread)
            seconds.append(clock() - began)

        self._call = watched_call
        try:
            yield seconds
        finally:
            self._call = call

    def _prepare(self, steps: npt.NDArray[np.int64], scratch_bytes: int) -> None:
        num_steps, num_fields = steps.shape
        assert num_fields == STEP_FIELDS, steps.shape
        if self._counters.num_steps < num_steps:
            self._counters = _Counters(num_steps)
        if self._scratch.num_bytes < scratch_bytes:
            self._scratch = _Scratch(self.num_threads, 2 * scratch_bytes)
        # All addresses, every time: after an exception in here, old ones may be of freed memory.
        fields = (address_of(steps), num_steps, self._counters.address, self.num_threads)
        self._write(*fields, *self._scratch.addresses)


def _serve(join: Compiled, control: npt.NDArray[np.int64], thread: int, calls: Calls) -> None:
    address = control.ctypes.data
    while calls.get():
        join.call(address, thread)


def _dismiss(calls: list[Calls]) -> None:
    for queue in calls:
        queue.put(False)
