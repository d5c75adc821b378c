"""A pass as a list of steps: recorded first, run when its result is needed.

    step   operation | num_chunks | waits | arguments …        20 int64

`waits` is 0 if the next step does not need this step's result.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.kernels.cpu.codegen.compiled import address_of
from forerun.kernels.cpu.codegen.lanes import padded, power_of_two
from forerun.kernels.cpu.runtime.drawn import DrawnRows
from forerun.kernels.cpu.runtime.interpreter import STEP_FIELDS
from forerun.kernels.cpu.runtime.workers import Workers

F32 = npt.NDArray[np.float32]

F32_BYTES: Final = 4
_NUM_OUTPUTS, _OUTPUT = 3, 11  # fields of a product's step
_NUM_ARGS: Final = STEP_FIELDS - 3
_PADDING: Final = tuple((0,) * n for n in range(_NUM_ARGS + 1))


Size = tuple[int, int, int]  # rows, width, parts


class Buffer(NamedTuple):
    data: F32  # [rows, padded width]
    address: int
    stride: int  # bytes
    size: Size


class Buffers:
    """A pool of the buffers for activations that no program is using.

    A buffer is reused only for its own width, so the zeros that pad its rows stay zero.
    """

    def __init__(self) -> None:
        self._free: dict[Size, list[Buffer]] = {}

    def take(self, size: Size) -> Buffer:
        """Return a buffer whose rows are not initialized."""
        free = self._free.get(size)
        if free:
            return free.pop()
        num_rows, width, num_parts = size
        data = aligned_zeros(num_rows, num_parts * padded(width // num_parts))
        return Buffer(data, data.ctypes.data, 4 * data.shape[1], size)

    def give_back(self, buffer: Buffer) -> None:
        self._free.setdefault(buffer.size, []).append(buffer)


def aligned_zeros(num_rows: int, row_len: int) -> F32:
    raw = np.zeros(num_rows * row_len * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + num_rows * row_len * 4].view(np.float32).reshape(num_rows, row_len)


class Program:
    """The steps of one pass, and the objects that must stay alive until they have run.

    Steps run in the order in which they are recorded. So a buffer that is no longer referenced may
    serve later steps of the same program at once; other programs get it after these steps ran.

    Steps hold the addresses of buffers. So, wherever an exception is raised, buffers live as long
    as the program or its recording, and none is given back twice; at worst a buffer is not reused.
    """

    def __init__(self, workers: Workers, buffers: Buffers) -> None:
        self.drawn: DrawnRows | None = None  # if set, the logits stay in place, uncopied
        self._buffers = buffers
        self._given_up: dict[Size, list[Buffer]] = {}  # free, but used by steps that have not run
        self._workers = workers
        self._steps: list[int] = []
        self._held: list[Any] = []
        self._used: dict[int, Buffer] = {}  # by address: every buffer that its steps use
        self._scratch_bytes = 0
        self._was_run = False
        self.last_args: tuple[int, ...] = ()
        # Where the last step writes, and its maker in `DIGIT_MAKERS`, if it has one.
        self.last_made: tuple[int, str] | None = None
        self._tapped: list[Rows] = []
        self.taps: tuple[F32, ...] = ()  # copies, set by `finish`

    def __del__(self) -> None:
        self._release()  # give back the buffers even if its steps never ran

    def add(self, operation: int, num_chunks: int, *args: int, waits: bool = True) -> None:
        self.last_args, self.last_made = args, None
        self._steps += (operation, num_chunks, waits, *args, *_PADDING[_NUM_ARGS - len(args)])

    def amend_last(self, operation: int, num_chunks: int, *more: int) -> None:
        """Replace the last step's operation by one that does more, with further arguments. The
        memory that it writes in addition must not be among its earlier arguments."""
        args = self.last_args
        del self._steps[-STEP_FIELDS:]
        self.add(operation, num_chunks, *args, *more)

    def hold(self, *things: Any) -> None:
        self._held += things

    def tap(self, rows: Rows) -> None:
        """Return a copy of `rows` with the result; no later step may write to them."""
        self._tapped.append(rows)

    def need_scratch(self, num_bytes: int) -> None:
        self._scratch_bytes = max(self._scratch_bytes, num_bytes)

    def take(self, num_rows: int, width: int, num_parts: int) -> Buffer:
        """Return a buffer of `num_rows` rows or more: a power of two, as records of digits need."""
        size = (power_of_two(num_rows), width, num_parts)
        given_up = self._given_up.get(size)
        buffer = given_up.pop() if given_up else self._buffers.take(size)
        self._used[buffer.address] = buffer
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        if self._steps:
            self._given_up.setdefault(buffer.size, []).append(buffer)
        else:
            self._buffers.give_back(buffer)

    def run(self) -> None:
        """Run the steps recorded since the last run."""
        if self._steps:
            self._workers.run(self._taken(), self._scratch_bytes)
            self._was_run = True
        self._release()

    def finish(self, result: Rows, num_products: int = 0) -> F32:  # noqa: ARG002
        """Run all steps and return a copy of `result`, which the last steps write.

        If `num_products` is not 0, so many products at the end write all of `result`, and a replay
        may direct them to other memory.
        """
        tapped, self._tapped = self._tapped, []  # no reference cycle: rows refer to this program
        self.run()
        self.taps = tuple(rows.values() for rows in tapped)
        return result.values()

    def _release(self) -> None:
        self._held.clear()
        for buffers in self._given_up.values():
            while buffers:
                self._buffers.give_back(buffers.pop())
        self._given_up.clear()

    def _taken(self) -> npt.NDArray[np.int64]:
        steps, self._steps, self.last_made = array("q", self._steps), [], None
        return np.frombuffer(steps, np.int64).reshape(-1, STEP_FIELDS)


class Tapped(NamedTuple):
    """Where rows of floats are in memory."""

    address: int
    stride: int  # bytes
    width: int


@dataclass(frozen=True)
class Recording:
    """A whole pass that can be run again and again.

    Recordings share their buffers, that of the result too. So a result is copied before the next
    recording runs, or the products at its end write to new memory in the first place.
    """

    steps: npt.NDArray[np.int64]  # [num_steps, STEP_FIELDS]
    result: F32  # a view
    address: int  # of the result
    taps: tuple[F32, ...]  # views
    held: tuple[Any, ...]  # objects that the steps need alive
    num_products: int = 0  # products at the end that write the whole result
    drawn: DrawnRows | None = None  # if set, tokens are drawn and the result is not copied

    def run(self, workers: Workers, scratch_bytes: int) -> tuple[F32, tuple[F32, ...]]:
        """Run it and return the result and the taps: copies, but a view if tokens are drawn."""
        return self._values(workers, scratch_bytes), self._tap_copies()

    def brought(self) -> tuple[F32, tuple[F32, ...]]:
        """Return what `run` would, for a pass that draws tokens and was run by `Workers.finish`."""
        return self.result, self._tap_copies()

    def _tap_copies(self) -> tuple[F32, ...]:
        return tuple(map(_flat_copy, self.taps)) if self.taps else ()

    @cached_property
    def tapped(self) -> list[Tapped]:
        """The addresses of the taps."""
        assert all(tap.shape[1] == 1 for tap in self.taps)
        return [Tapped(tap.ctypes.data, tap.strides[0], tap.shape[2]) for tap in self.taps]

    def _values(self, workers: Workers, scratch_bytes: int) -> F32:
        if self.drawn is not None:
            workers.run(self.steps, scratch_bytes)
            return self.result
        if not self.num_products:
            workers.run(self.steps, scratch_bytes)
            return _flat_copy(self.result)
        num_rows, _, width = self.result.shape
        values = np.empty((num_rows, width), np.float32)
        try:
            self._direct(address_of(values))
            workers.run(self.steps, scratch_bytes)
        finally:
            self._direct(self.address)
        return values

    def _direct(self, address: int) -> None:
        """Let the last products write to rows at `address`, each to its own columns."""
        for step in range(-self.num_products, 0):
            self.steps[step, _OUTPUT] = address
            address += F32_BYTES * int(self.steps[step, _NUM_OUTPUTS])

    def without(self, thing: Any) -> Recording:
        """Return a copy that does not hold `thing`, which must outlive it."""
        return replace(self, held=tuple(held for held in self.held if held is not thing))


class KeptProgram(Program):
    """A program that keeps a recording of itself, unless it was run in pieces."""

    _recording: Recording | None = None

    def finish(self, result: Rows, num_products: int = 0) -> F32:
        if self._was_run:
            return super().finish(result)
        if result.stride != F32_BYTES * result.width:  # its rows are padded
            num_products = 0
        held = (*self._held, *self._used.values())
        tapped, self._tapped = self._tapped, []
        views = tuple(rows.view() for rows in tapped)
        place = (result.view(), result.address)
        self._recording = Recording(self._taken(), *place, views, held, num_products, self.drawn)
        values, self.taps = self._recording.run(self._workers, self._scratch_bytes)
        self._release()
        return values

    def take_recording(self) -> Recording | None:
        """Hand over the recording; keeping it here, too, would be a reference cycle."""
        recording, self._recording = self._recording, None
        return recording


class Rows:
    """Activations [num_rows, width], valid once their program has run.

    A row consists of `num_parts` equal parts (heads), each padded to a multiple of 16 floats.
    """

    __slots__ = (
        "_buffer",
        "address",
        "digits",
        "num_parts",
        "num_rows",
        "place",
        "program",
        "stride",
        "width",
    )

    def __init__(self, program: Program, num_rows: int, width: int, num_parts: int = 1) -> None:
        self.program = program
        self.num_rows = num_rows
        self.width = width
        self.num_parts = num_parts
        self._buffer = program.take(num_rows, width, num_parts)
        self.address = self._buffer.address
        self.stride = self._buffer.stride
        self.place = (self.address, self.stride)
        self.digits: Digits | None = None  # once a step that writes them is recorded

    def __del__(self) -> None:
        if hasattr(self, "_buffer"):  # not set if allocating it failed
            self.program.give_back(self._buffer)

    def fill(self, values: F32) -> None:
        self._buffer.data[: self.num_rows, : self.width] = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Run the program's recorded steps, then copy the values."""
        self.program.run()
        return self.values().astype(dtype or np.float32)

    def values(self) -> F32:
        """Copy the present values, without running anything."""
        return _flat_copy(self.view())

    def view(self) -> F32:
        """Return a view of the values: [num_rows, num_parts, width / num_parts]"""
        rows = self._buffer.data[: self.num_rows]
        parts = rows.reshape(self.num_rows, self.num_parts, rows.shape[1] // self.num_parts)
        return parts[:, :, : self.width // self.num_parts]


# Records of digits, and the bytes from one to the next block's, next group's and next row's.
Digits = tuple[Rows, tuple[int, int, int]]


def _flat_copy(view: F32) -> F32:
    num_rows, num_parts, part_len = view.shape
    return np.array(view).reshape(num_rows, num_parts * part_len)


@cache
def float_bits(value: float) -> int:
    """Return a float32's bits as a field of a step stores them."""
    (bits,) = struct.unpack("<i", struct.pack("<f", value))
    return int(bits)
