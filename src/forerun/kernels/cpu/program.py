"""A pass as a list of steps, recorded first and run when its result is asked for.

    step   operation | num_chunks | waits | arguments …        20 int64

`waits` is 0 where the next step does not need this one's result.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.kernels.cpu.interpreter import STEP_FIELDS
from forerun.kernels.cpu.workers import Workers

F32 = npt.NDArray[np.float32]

GROUP_LEN: Final = 16
_NUM_ARGS: Final = STEP_FIELDS - 3
_PADDING: Final = tuple((0,) * n for n in range(_NUM_ARGS + 1))


def padded(length: int) -> int:
    """The next multiple of 16: rows are laid out so, with zeros at their end."""
    return -(-length // GROUP_LEN) * GROUP_LEN


class Buffer(NamedTuple):
    data: F32  # [capacity, padded width]
    address: int
    stride: int  # bytes
    home: list[Buffer]  # where it goes when nobody holds it


class Buffers:
    """Memory for activations, handed out again as soon as nobody holds it.

    Steps run in the order they are recorded, so a buffer may be given away while the steps that
    use it still wait to be run. Buffers of different widths are never exchanged: what pads a row
    with zeros stays zero.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[int, int, int], list[Buffer]] = {}

    def take(self, num_rows: int, width: int, num_parts: int) -> Buffer:
        """At least `num_rows` rows; what they hold is anyone's guess."""
        key = (1 << max(num_rows - 1, 0).bit_length(), width, num_parts)
        free = self._free.setdefault(key, [])
        if free:
            return free.pop()
        data = _aligned_zeros(key[0], num_parts * padded(width // num_parts))
        return Buffer(data, data.ctypes.data, 4 * data.shape[1], free)


def _aligned_zeros(num_rows: int, row_len: int) -> F32:
    raw = np.zeros(num_rows * row_len * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + num_rows * row_len * 4].view(np.float32).reshape(num_rows, row_len)


class Program:
    """The steps of one pass, and what must stay alive until they have run."""

    def __init__(self, workers: Workers, buffers: Buffers) -> None:
        self.buffers: Final = buffers
        self._workers = workers
        self._steps = array("q")
        self._held: list[Any] = []
        self._scratch_bytes = 0
        self._was_run = False

    def add(self, operation: int, num_chunks: int, *args: int, waits: bool = True) -> None:
        self._steps.extend((operation, num_chunks, waits, *args, *_PADDING[_NUM_ARGS - len(args)]))

    def hold(self, *things: Any) -> None:
        self._held += things

    def need_scratch(self, num_bytes: int) -> None:
        self._scratch_bytes = max(self._scratch_bytes, num_bytes)

    def run(self) -> None:
        """Run what has been recorded since the last run."""
        if self._steps:
            self._workers.run(self._taken(), self._scratch_bytes)
            self._was_run = True
        self._held.clear()

    def finish(self, result: Rows) -> F32:
        """Run everything and return a copy of `result`, the last thing recorded."""
        self.run()
        return result.values()

    def _taken(self) -> npt.NDArray[np.int64]:
        steps, self._steps = self._steps, array("q")
        return np.frombuffer(steps, np.int64).reshape(-1, STEP_FIELDS)


@dataclass(frozen=True)
class Recording:
    """A whole pass, to be run again and again."""

    steps: npt.NDArray[np.int64]  # [num_steps, STEP_FIELDS]
    result: Rows
    held: tuple[Any, ...]  # what the steps need alive

    def run(self, workers: Workers, scratch_bytes: int) -> F32:
        workers.run(self.steps, scratch_bytes)
        return self.result.values()


class KeptProgram(Program):
    """A program that leaves a recording, unless it was run in pieces."""

    recording: Recording | None = None

    def finish(self, result: Rows) -> F32:
        if self._was_run:
            return super().finish(result)
        self.recording = Recording(self._taken(), result, tuple(self._held))
        return self.recording.run(self._workers, self._scratch_bytes)


class Rows:
    """Activations [num_rows, width] that a program will have computed once it has run.

    A row is `num_parts` equal parts (heads), each padded to a multiple of 16 floats.
    """

    __slots__ = (
        "_buffer",
        "address",
        "digits",
        "num_parts",
        "num_rows",
        "program",
        "stride",
        "width",
    )

    def __init__(self, program: Program, num_rows: int, width: int, num_parts: int = 1) -> None:
        self.program = program
        self.num_rows = num_rows
        self.width = width
        self.num_parts = num_parts
        self._buffer = program.buffers.take(num_rows, width, num_parts)
        self.address = self._buffer.address
        self.stride = self._buffer.stride
        self.digits: Rows | None = None  # once a product has needed them

    def __del__(self) -> None:
        self._buffer.home.append(self._buffer)

    def fill(self, values: F32) -> None:
        self._buffer.data[: self.num_rows, : self.width] = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """A copy of the numbers, after running what they need."""
        self.program.run()
        return self.values().astype(dtype or np.float32)

    def values(self) -> F32:
        """A copy of the numbers as they are now."""
        if not self.num_rows:
            return np.empty((0, self.width), np.float32)
        parts = self._buffer.data[: self.num_rows].reshape(self.num_rows, self.num_parts, -1)
        used = parts[:, :, : self.width // self.num_parts]
        return np.array(used.reshape(self.num_rows, self.width))
