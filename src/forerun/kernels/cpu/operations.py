"""The operations of a pass other than attention; a call does one chunk of one step.

    operation(step, chunk, scratch)

`step` is the address of the step's fields (`runtime/program.py`). The first three are the
operation, the number of chunks and a flag; `arg(step, i)` is the i-th field after them. `scratch`
is this thread's own memory. All addresses and strides are in bytes. Rows are padded with zeros to
a multiple of 16 floats.
"""

from __future__ import annotations

import math
from typing import Any, Final

from numba import float32, int64, njit

from forerun.kernels.cpu.codegen.lanes import GROUP_LEN
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.native import dot, floats, int_at, ints, num_parts, quotient
from forerun.kernels.cpu.codegen.scalar import exp32, silu_group
from forerun.kernels.cpu.codegen.step import arg, float_arg, num_groups
from forerun.kernels.cpu.products.digits import BLOCK_LEN, GROUP_ROWS, make_write_blocks

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


def add_norm(step, chunk, _scratch):
    """x += delta; h = x · weight / sqrt(mean(x²) + eps), for one row."""
    width, stride = arg(step, 0), arg(step, 1)
    row = chunk * stride
    address = arg(step, 2) + row
    x, h, weight = floats(address), floats(arg(step, 4) + row), floats(arg(step, 5))
    if arg(step, 3) != 0:
        delta = floats(arg(step, 3) + row)
        for i in range(width):
            x[i] = x[i] + delta[i]
    mean = dot(address, address, num_groups(width)) / float32(width)
    scale = float32(1) / math.sqrt(mean + float_arg(step, 6))
    for i in range(width):
        h[i] = x[i] * scale * weight[i]


_add_norm: Final = njit(inline="always")(add_norm)


def silu_mul(step, chunk, _scratch):
    """silu(gate) · up, for one row."""
    _silu_mul(step, chunk, 0, arg(step, 0))


@njit(inline="always")
def _silu_mul(step, row, first, last):
    gate = arg(step, 1) + row * arg(step, 2)
    up, out = gate + 4 * arg(step, 0), arg(step, 3) + row * arg(step, 4)
    whole = last - (last - first) % GROUP_LEN
    for i in range(first, whole, GROUP_LEN):
        silu_group(gate + 4 * i, up + 4 * i, out + 4 * i)
    for i in range(whole, last):
        x = floats(gate)[i]
        floats(out)[i] = x / (float32(1) + exp32(-x)) * floats(up)[i]


def read(step, chunk, _scratch):
    """Sum a run of int64, to measure how fast memory can be read."""
    num_ints = arg(step, 0)
    values = ints(arg(step, 1) + 8 * chunk * num_ints)
    total = int64(0)
    for i in range(num_ints):
        total += values[i]
    ints(arg(step, 2))[chunk] = total


def select(step, chunk, _scratch):
    """Copy one wanted row."""
    width, stride = arg(step, 0), arg(step, 1)
    source = floats(arg(step, 2) + int_at(arg(step, 3), chunk) * stride)
    target = floats(arg(step, 4) + chunk * stride)
    for i in range(width):
        target[i] = source[i]


def place(step, chunk, _scratch):
    """Copy one row into a range of columns of another."""
    source = floats(arg(step, 1) + chunk * arg(step, 2))
    target = floats(arg(step, 3) + chunk * arg(step, 4))
    for i in range(arg(step, 0)):
        target[i] = source[i]


def make_linear(product: Any, max_width: int, widest: int) -> Any:
    """Make the operation that computes one chunk of a product's outputs, for all rows.

    A tile has up to `max_width` rows, or exactly `widest`.
    """

    def linear(step, chunk, _scratch):
        num_outputs, chunk_len, num_rows = arg(step, 0), arg(step, 1), arg(step, 2)
        w_stride, x_stride, y_stride = arg(step, 4), arg(step, 6), arg(step, 9)
        first = chunk * chunk_len
        is_last = chunk == int_at(step, 1) - 1  # the last chunk takes what is left over
        count = num_outputs - first if is_last else chunk_len
        w, y, bias = arg(step, 3) + first * w_stride, arg(step, 8) + 4 * first, arg(step, 10)
        row, x, num_blocks = int64(0), arg(step, 5), arg(step, 7)
        while row < num_rows:
            # The tiles of a group of rows differ in width by one row at most.
            left = min(GROUP_ROWS - row % GROUP_ROWS, num_rows - row)
            num_tiles = 1 if left == widest else (left + max_width - 1) // max_width
            width = (left + num_tiles - 1) // num_tiles
            here = x + row // GROUP_ROWS * arg(step, 11) + row % GROUP_ROWS * arg(step, 12)
            out = y + row * y_stride
            product(width, count, w, w_stride, here, x_stride, num_blocks, out, y_stride)
            row += width
        if bias != 0:
            terms = floats(bias + 4 * first)
            for r in range(num_rows):
                totals = floats(y + r * y_stride)
                for i in range(count):
                    totals[i] = totals[i] + terms[i]

    return linear


def make_write_digits(machine: Machine) -> Any:
    """Make the operation that writes a few blocks of one row as records of digits."""
    write_blocks = make_write_blocks(machine)

    def write_digits(step, chunk, _scratch):
        num_blocks = arg(step, 2)
        row, first, last = _part_of_row(chunk, num_blocks, arg(step, 3))
        x = arg(step, 0) + row * arg(step, 1)
        write_blocks(x, row, first, last, num_blocks, arg(step, 4), arg(step, 5))

    return write_digits


def make_norm_digits(machine: Machine) -> Any:
    """Make the operation that does `add_norm` and writes h as records of digits, too."""
    write_blocks = make_write_blocks(machine)

    def norm_digits(step, chunk, scratch):
        _add_norm(step, chunk, scratch)
        h, num_blocks = arg(step, 4) + chunk * arg(step, 1), arg(step, 7)
        write_blocks(h, chunk, 0, num_blocks, num_blocks, arg(step, 9), arg(step, 10))

    return norm_digits


def make_silu_digits(machine: Machine) -> Any:
    """Make the operation that does `silu_mul` for a few blocks of one row, and writes them as
    records of digits, too."""
    write_blocks = make_write_blocks(machine)

    def silu_digits(step, chunk, _scratch):
        num_blocks = arg(step, 5)
        row, first, last = _part_of_row(chunk, num_blocks, arg(step, 6))
        _silu_mul(step, row, first * BLOCK_LEN, last * BLOCK_LEN)
        out = arg(step, 3) + row * arg(step, 4)
        write_blocks(out, row, first, last, num_blocks, arg(step, 7), arg(step, 8))

    return silu_digits


@njit(inline="always")
def _part_of_row(chunk, num_blocks, per_chunk):
    """Return (row, first block, end block) of a chunk of a few blocks; the end is exclusive."""
    chunks_per_row = num_parts(num_blocks, per_chunk)
    row = quotient(chunk, chunks_per_row)
    first = (chunk - row * chunks_per_row) * per_chunk
    return row, first, min(first + per_chunk, num_blocks)


def make_embed(expand: Any) -> Any:
    """Make the operation that expands one token's row of an embedding table."""

    def embed(step, chunk, _scratch):
        token = int_at(arg(step, 0), chunk)
        row = arg(step, 1) + token * arg(step, 2)
        expand(row, arg(step, 3), arg(step, 4) + chunk * arg(step, 5))

    return embed
