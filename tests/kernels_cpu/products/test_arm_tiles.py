"""Tiles of ARM's instruction sets, run on whatever machine this is: in an emulator."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from llvmlite import binding, ir

from forerun.kernels.cpu.codegen.lanes import I64, Emitter
from forerun.kernels.cpu.codegen.machine import ARM, NEON_OUTPUTS, InstructionSet, Machine
from forerun.kernels.cpu.products.digit_tile import DigitTile
from forerun.kernels.cpu.products.digits import BLOCK_LEN, RecordShape
from forerun.kernels.cpu.products.formats import PACKED
from forerun.kernels.cpu.products.operands import Operands
from forerun.kernels.cpu.weights.interleave import Tiles
from tests.kernels.sources import F32, normal
from tests.kernels_cpu.arm.emulator import Emulator
from tests.kernels_cpu.packed import PackedSource, packed
from tests.kernels_cpu.products.test_formats import product_of_digits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the emulator looks into /proc")

SETS = {each.name: each for each in ARM}
NUM_OUT, NUM_IN = 4, 512  # outputs of one tile
FAST = (("Q8_0", 1), ("Q4_1", 1), ("Q4_1", 2), ("Q4_K", 1))  # each is compiled, which takes long


def tile_of(weight_format: str, machine: Machine, num_rows: int) -> Any:
    """The LLVM module of a function `tile` that computes one tile."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 7), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    operands = Operands(*function.args)
    DigitTile(weight_format, num_rows, Emitter(builder, machine), operands).emit()
    builder.ret_void()
    return binding.parse_assembly(str(module))


def target_of(instructions: InstructionSet) -> Any:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    features = ",".join(f"+{each}" for each in instructions.needs)
    return binding.Target.from_triple("aarch64-linux-gnu").create_target_machine(
        features=features, opt=3, codemodel="jitdefault", jit=True
    )


def records_of(x: F32, num_digits: int) -> tuple[np.ndarray, int]:
    """The digits of `x` as records (see `digits.py`), and the bytes from one block to the next."""
    shape = RecordShape(num_digits)
    stride = shape.block_stride(len(x))
    found = np.zeros((x.shape[1] // BLOCK_LEN, stride), np.uint8)
    most = np.float32(127 << 8 * (num_digits - 1))
    for row, values in enumerate(x):
        for block, part in enumerate(values.reshape(-1, BLOCK_LEN)):
            largest = np.abs(part).max()
            whole = np.rint(part * (most / largest)).astype(np.int64)
            high = (whole + 128) >> 8
            digits = [whole] if num_digits == 1 else [high, whole - (high << 8)]
            scale = largest / most
            floats = np.array([scale, np.float32(whole.sum()) * scale], np.float32)
            record = [*(each.astype(np.int8).view(np.uint8) for each in digits)]
            record.append(floats.view(np.uint8))
            flat = np.concatenate(record)
            start = row * shape.num_bytes
            found[block, start : start + len(flat)] = flat
    return found, stride


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    return Emulator()


@pytest.mark.parametrize(
    ("weight_format", "num_digits"),
    [
        pytest.param(each, digits, marks=() if (each, digits) in FAST else pytest.mark.slow)
        for each in PACKED
        for digits in (1, 2)
    ],
)
@pytest.mark.parametrize("name", ["i8mm", "dotprod", "neon"])
def test_a_tile_has_the_documented_bits(
    name: str, weight_format: str, num_digits: int, emulator: Emulator
) -> None:
    machine = Machine(4, NEON_OUTPUTS, num_digits, SETS[name])
    source = PackedSource(weight_format, packed(weight_format, NUM_OUT, NUM_IN, seed=7))
    x = normal(8, 8, NUM_IN)
    x[:, ::100] *= 50
    expected = product_of_digits(source, x, num_digits)
    (tiles,) = Tiles(SETS[name]).interleaved(source.data, weight_format)
    num_blocks = NUM_IN // PACKED[weight_format].block_len
    for num_rows in (1, 2, 3, 8):
        records, stride = records_of(x[:num_rows], num_digits)
        y = np.zeros((num_rows, NUM_OUT), np.float32)
        target = target_of(SETS[name])
        code = target.emit_object(tile_of(weight_format, machine, num_rows))
        weights = (tiles.ctypes.data, 0)  # a tile is read from front to back
        places = (records.ctypes.data, stride, num_blocks, y.ctypes.data, y.strides[0])
        with emulator.loaded(code, target) as address_of:
            emulator.call(address_of("tile"), *weights, *places)
        np.testing.assert_array_equal(y, expected[:num_rows])


@pytest.mark.parametrize(
    ("name", "instruction"), [("i8mm", "smmla"), ("dotprod", "sdot"), ("neon", "sadalp")]
)
def test_arm_has_the_instruction(name: str, instruction: str) -> None:
    tile = tile_of("Q4_1", Machine(4, NEON_OUTPUTS, 1, SETS[name]), 4)
    assert f"{instruction}\t" in target_of(SETS[name]).emit_assembly(tile)
