"""A pass as a list of steps, recorded first and run when its result is asked for.

    step   operation | num_chunks | waits | arguments …        20 int64

`waits` is 0 where the next step does not need this one's result.
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
    """Memory for activations that no program needs now.

    Buffers of different widths are never exchanged: what pads a row with zeros stays zero.
    """

    def __init__(self) -> None:
        self._free: dict[Size, list[Buffer]] = {}

    def take(self, size: Size) -> Buffer:
        """What its rows hold is anyone's guess."""
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
    """The steps of one pass, and what must stay alive until they have run.

    Steps run in the order they are recorded, so a buffer that nobody holds any more serves later
    steps of the same program at once. Others get it when the steps that use it have run.

    Whatever is raised, and wherever: steps have the addresses of buffers, so these live as long as
    the program or its recording, and none is given back twice. At worst one is lost to others.
    """

    def __init__(self, workers: Workers, buffers: Buffers) -> None:
        self.drawn: DrawnRows | None = None  # then logits are not its result, and are not copied
        self._buffers = buffers
        self._given_up: dict[Size, list[Buffer]] = {}  # by steps that have not run
        self._workers = workers
        self._steps: list[int] = []
        self._held: list[Any] = []
        self._used: dict[int, Buffer] = {}  # by address: all that its steps ever had
        self._scratch_bytes = 0
        self._was_run = False
        self.last_args: tuple[int, ...] = ()
        self.last_made: tuple[int, str] | None = None  # where the last step writes; its maker
        self._tapped: list[Rows] = []
        self.taps: tuple[F32, ...] = ()  # copies, once it has finished

    def __del__(self) -> None:
        self._release()  # recordings may have the addresses of what it gave up without running

    def add(self, operation: int, num_chunks: int, *args: int, waits: bool = True) -> None:
        self.last_args, self.last_made = args, None
        self._steps += (operation, num_chunks, waits, *args, *_PADDING[_NUM_ARGS - len(args)])

    def amend_last(self, operation: int, num_chunks: int, *more: int) -> None:
        """Let the last step do more, with further arguments; what it writes besides must not be
        memory that it had already."""
        args = self.last_args
        del self._steps[-STEP_FIELDS:]
        self.add(operation, num_chunks, *args, *more)

    def hold(self, *things: Any) -> None:
        self._held += things

    def tap(self, rows: Rows) -> None:
        """Hand out a copy of `rows` with the result; nothing may be written to them after this."""
        self._tapped.append(rows)

    def need_scratch(self, num_bytes: int) -> None:
        self._scratch_bytes = max(self._scratch_bytes, num_bytes)

    def take(self, num_rows: int, width: int, num_parts: int) -> Buffer:
        """Of at least `num_rows` rows: a power of two, as records of digits need them."""
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
        """Run what has been recorded since the last run."""
        if self._steps:
            self._workers.run(self._taken(), self._scratch_bytes)
            self._was_run = True
        self._release()

    def finish(self, result: Rows, num_products: int = 0) -> F32:  # noqa: ARG002
        """Run everything and return a copy of `result`, the last thing recorded.

        So many products at the end write all of it, and may write it elsewhere.
        """
        tapped, self._tapped = self._tapped, []  # they lead back to this program
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
    """Rows of floats in memory."""

    address: int
    stride: int  # bytes
    width: int


@dataclass(frozen=True)
class Recording:
    """A whole pass, to be run again and again.

    Recordings share their buffers, the one of the result too: it is copied before the next runs,
    or the products that it comes from write to other memory in the first place.
    """

    steps: npt.NDArray[np.int64]  # [num_steps, STEP_FIELDS]
    result: F32  # a view
    address: int  # where that lies
    taps: tuple[F32, ...]  # views
    held: tuple[Any, ...]  # what the steps need alive
    num_products: int = 0  # at the end, which write the whole result
    drawn: DrawnRows | None = None  # from a result that is not copied

    def run(self, workers: Workers, scratch_bytes: int) -> tuple[F32, tuple[F32, ...]]:
        """The result, and what is handed out besides; where tokens are drawn, a view."""
        return self._values(workers, scratch_bytes), self._tap_copies()

    def brought(self) -> tuple[F32, tuple[F32, ...]]:
        """What `run` returns, once it has run, where tokens are drawn."""
        return self.result, self._tap_copies()

    def _tap_copies(self) -> tuple[F32, ...]:
        return tuple(map(_flat_copy, self.taps)) if self.taps else ()

    @cached_property
    def tapped(self) -> list[Tapped]:
        """Where the taps lie."""
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
        """Let the last products write to `address`: a part of each row, side by side."""
        for step in range(-self.num_products, 0):
            self.steps[step, _OUTPUT] = address
            address += F32_BYTES * int(self.steps[step, _NUM_OUTPUTS])

    def without(self, thing: Any) -> Recording:
        """Not holding `thing`, which outlives it."""
        return replace(self, held=tuple(held for held in self.held if held is not thing))


class KeptProgram(Program):
    """A program that leaves a recording, unless it was run in pieces."""

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
        """It is the caller's now: what it holds leads back to this program."""
        recording, self._recording = self._recording, None
        return recording


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
        self.digits: Digits | None = None  # once they are recorded

    def __del__(self) -> None:
        if hasattr(self, "_buffer"):  # or there was no memory for one
            self.program.give_back(self._buffer)

    def fill(self, values: F32) -> None:
        self._buffer.data[: self.num_rows, : self.width] = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """A copy of the numbers, after running what they need."""
        self.program.run()
        return self.values().astype(dtype or np.float32)

    def values(self) -> F32:
        """A copy of the numbers as they are now."""
        return _flat_copy(self.view())

    def view(self) -> F32:
        """The numbers where they are: [num_rows, num_parts, width / num_parts]"""
        rows = self._buffer.data[: self.num_rows]
        parts = rows.reshape(self.num_rows, self.num_parts, rows.shape[1] // self.num_parts)
        return parts[:, :, : self.width // self.num_parts]


# Records of rows; from one to that of the next block, of the next group of rows, of the next row.
Digits = tuple[Rows, tuple[int, int, int]]


def _flat_copy(view: F32) -> F32:
    num_rows, num_parts, part_len = view.shape
    return np.array(view).reshape(num_rows, num_parts * part_len)


@cache
def float_bits(value: float) -> int:
    """As a field of a step has them."""
    (bits,) = struct.unpack("<i", struct.pack("<f", value))
    return int(bits)
