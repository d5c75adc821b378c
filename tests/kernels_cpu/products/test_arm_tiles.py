"""Tiles of ARM's instruction sets, run on whatever machine this is.

Their vector code is compiled for the host, and the instructions that only ARM has are functions
which do what ARM's manual says of them. So layouts, orders and signs are checked everywhere; that
ARM's own compiler has the instructions is checked in its assembly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from llvmlite import binding, ir

from forerun.kernels.cpu.codegen.lanes import I32, I64, Emitter, vector
from forerun.kernels.cpu.codegen.machine import ARM, NEON_OUTPUTS, InstructionSet, Machine
from forerun.kernels.cpu.products.digit_tile import DigitTile
from forerun.kernels.cpu.products.digits import BLOCK_LEN, RecordShape
from forerun.kernels.cpu.products.formats import PACKED
from forerun.kernels.cpu.products.operands import Operands
from forerun.kernels.cpu.weights.interleave import Tiles
from tests.kernels.sources import F32, normal
from tests.kernels_cpu.packed import PackedSource, packed
from tests.kernels_cpu.products.test_formats import product_of_digits

SETS = {each.name: each for each in ARM}
NUM_OUT, NUM_IN = 4, 512  # outputs of one tile
FAST = (("Q8_0", 1), ("Q4_1", 1), ("Q4_1", 2), ("Q4_K", 1))  # each is compiled, which takes long
BYTES, INTS = vector(ir.IntType(8), 16), vector(I32, 4)


def _sum(e: Emitter, left: ir.Value, right: ir.Value, firsts: tuple[int, int], count: int):  # type: ignore[no-untyped-def]
    """Σ left[a + i] · right[b + i] of signed bytes, for i below `count`."""
    b, total = e.builder, I32(0)
    for idx in range(count):
        factors = (
            b.sext(b.extract_element(value, I32(first + idx)), I32)
            for value, first in zip((left, right), firsts, strict=True)
        )
        total = b.add(total, b.mul(*factors))
    return total


def _model(module: ir.Module, name: str, lane: Callable[..., ir.Value]) -> None:
    """A function by an intrinsic's name, which the tile then calls."""
    kind = ir.FunctionType(INTS, [INTS, BYTES, BYTES])
    function = ir.Function(module, kind, f"llvm.aarch64.neon.{name}")
    b = ir.IRBuilder(function.append_basic_block())
    e, (sums, *factors) = Emitter(b, Machine(4, NEON_OUTPUTS)), function.args
    for idx in range(4):
        total = b.add(b.extract_element(sums, I32(idx)), lane(e, idx, *factors))
        sums = b.insert_element(sums, total, I32(idx))
    b.ret(sums)


def _model_fixed(module: ir.Module) -> None:
    """The conversion of integers that are divided by a power of two."""
    floats = vector(ir.FloatType(), 4)
    name = "llvm.aarch64.neon.vcvtfxu2fp.v4f32.v4i32"
    function = ir.Function(module, ir.FunctionType(floats, [INTS, I32]), name)
    b = ir.IRBuilder(function.append_basic_block())
    integers, num_bits = function.args
    power = b.uitofp(b.shl(I64(1), b.zext(num_bits, I64)), ir.FloatType())
    powers = Emitter(b, Machine(4, NEON_OUTPUTS)).splat(power, 4)
    b.ret(b.fdiv(b.uitofp(integers, floats), powers))


def _model_pairs(module: ir.Module) -> None:
    """The sums of neighbours, which are as wide as both."""
    name = "llvm.aarch64.neon.saddlp.v4i32.v8i16"
    function = ir.Function(module, ir.FunctionType(INTS, [vector(ir.IntType(16), 8)]), name)
    b = ir.IRBuilder(function.append_basic_block())
    sums = INTS([0] * 4)
    for idx in range(4):
        two = (b.extract_element(function.args[0], I32(2 * idx + i)) for i in (0, 1))
        total = b.add(*(b.sext(each, I32) for each in two))
        sums = b.insert_element(sums, total, I32(idx))
    b.ret(sums)


def tile_of(weight_format: str, machine: Machine, num_rows: int, *, for_host: bool) -> str:
    """The IR of a function of a tile's operands."""
    module = ir.Module()
    if for_host:
        _model(module, "sdot.v4i32.v16i8", lambda e, i, a, b: _sum(e, a, b, (4 * i,) * 2, 4))
        _model(
            module,
            "smmla.v4i32.v16i8",
            lambda e, i, a, b: _sum(e, a, b, (8 * (i // 2), 8 * (i % 2)), 8),
        )
        _model_fixed(module)
        _model_pairs(module)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * 7), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    operands = Operands(*function.args)
    DigitTile(weight_format, num_rows, Emitter(builder, machine), operands).emit()
    builder.ret_void()
    text = str(module)
    if for_host:  # such names are LLVM's; and a register of vectors is called x there
        text = text.replace("llvm.aarch64", "arm").replace('"=r,0,w"', '"=r,0,x"')
    return text


def records_of(x: F32, num_digits: int) -> tuple[np.ndarray, int]:
    """As `digits.py` says; and how far it is from a block's records to those of the next."""
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


def run(ir_text: str, *operands: int) -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(ir_text)
    module.verify()
    target = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten()
    )
    with binding.create_mcjit_compiler(module, target) as engine:
        engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)
        kind(engine.get_function_address("tile"))(*operands)


@pytest.mark.parametrize(
    ("weight_format", "num_digits"),
    [
        pytest.param(each, digits, marks=() if (each, digits) in FAST else pytest.mark.slow)
        for each in PACKED
        for digits in (1, 2)
    ],
)
@pytest.mark.parametrize("name", ["i8mm", "dotprod", "neon"])
def test_a_tile_has_the_documented_bits(name: str, weight_format: str, num_digits: int) -> None:
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
        text = tile_of(weight_format, machine, num_rows, for_host=True)
        weights = (tiles.ctypes.data, 0)  # a tile is read from front to back
        places = (records.ctypes.data, stride, num_blocks, y.ctypes.data, y.strides[0])
        run(text, *weights, *places)
        np.testing.assert_array_equal(y, expected[:num_rows])


@pytest.mark.parametrize(
    ("name", "instruction"), [("i8mm", "smmla"), ("dotprod", "sdot"), ("neon", "sadalp")]
)
def test_arm_has_the_instruction(name: str, instruction: str) -> None:
    instructions: InstructionSet = SETS[name]
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    text = tile_of("Q4_1", Machine(4, NEON_OUTPUTS, 1, instructions), 4, for_host=False)
    target = binding.Target.from_triple("aarch64-linux-gnu").create_target_machine(
        features=",".join(f"+{each}" for each in instructions.needs), opt=3
    )
    module = binding.parse_assembly(text)
    assert f"{instruction}\t" in target.emit_assembly(module)
