"""The fields of a step, as compiled code reads them (`runtime/program.py` writes them)."""

from __future__ import annotations

from numba import int32, njit

from forerun.kernels.cpu.codegen.native import float_of_bits, int_at

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

NUM_HEADER_FIELDS = 3


@njit(inline="always")
def arg(step, idx):
    return int_at(step, idx + NUM_HEADER_FIELDS)


@njit(inline="always")
def float_arg(step, idx):
    return float_of_bits(int32(arg(step, idx)))


@njit(inline="always")
def num_groups(length):
    return (length + 15) // 16
