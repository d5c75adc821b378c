"""Products with every weight format: near float64, and the same bits for any rows and threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.codegen.machine import AVX2_OUTPUTS, AVX512_OUTPUTS, Machine
from forerun.kernels.cpu.products.digits import BLOCK_LEN
from forerun.kernels.cpu.products.formats import FORMATS, PACKED
from forerun.usable_cores import num_usable_cores
from tests.contracts.kernel_sets import CACHE_DIR
from tests.kernels.sources import F32, ArraySource, normal
from tests.kernels_cpu.packed import PackedSource, packed
from tests.kernels_cpu.products.integer_runs import runs_of

MAX_ROWS = 64
NUM_IN = 1536
EPS = float(np.finfo(np.float32).eps)

HOST = Machine.host()
INT16 = replace(HOST, num_digits=2)  # activations of 16 bits
MACHINES = [HOST, INT16]


def case(weight_format: str, machine: Machine) -> Any:
    """The parameters of a test. Each format takes seconds to compile: a format with two others of
    its kind is a slow test, and an instruction set that is not the host's has one fast test."""
    if machine == HOST:
        is_slow = weight_format == "Q5_K"
    elif machine == INT16:
        is_slow = weight_format not in ("Q8_0", "Q4_1")
    else:
        is_slow = (weight_format, machine.num_digits) != ("Q4_1", HOST.num_digits)
    return pytest.param(weight_format, machine, marks=pytest.mark.slow if is_slow else ())


CASES = [case(name, HOST) for name in FORMATS]
CASES += [case(name, INT16) for name in PACKED]


def named(value: object) -> str | None:
    return f"{value.num_digits}-digits" if isinstance(value, Machine) else None


def kernels(num_threads: int = 1, machine: Machine = HOST) -> CpuKernels:
    num_threads = min(num_threads, num_usable_cores())
    return CpuKernels(num_threads, cache_dir=CACHE_DIR, machine=machine)


def product(kernels: CpuKernels, source: PackedSource, x: np.ndarray) -> np.ndarray:
    return products(kernels, source)(x)


def products(kernels: CpuKernels, source: PackedSource) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that multiplies by weights that are loaded once."""
    matrix = kernels.load_matrix(source, ["w"])
    return lambda x: np.asarray(kernels.linear(kernels.rows(x), matrix))


@pytest.mark.parametrize(("weight_format", "machine"), CASES, ids=named)
@pytest.mark.parametrize("num_out", [16, 97])
def test_a_product_has_the_same_bits_for_any_rows_and_threads(
    weight_format: str, num_out: int, machine: Machine
) -> None:
    source = PackedSource(weight_format, packed(weight_format, num_out, NUM_IN))
    x = normal(2, MAX_ROWS, NUM_IN)
    x[:, ::100] *= 50  # activations have outliers
    one, two = (products(kernels(num, machine), source) for num in (1, 2))
    alone = np.concatenate([one(x[t : t + 1]) for t in range(MAX_ROWS)])
    for num_rows in range(1, MAX_ROWS + 1):
        for times in (one, two):
            np.testing.assert_array_equal(times(x[:num_rows]), alone[:num_rows])


@pytest.mark.parametrize(
    ("weight_format", "machine", "num_in"),
    [
        pytest.param(*each.values, num_in, marks=each.marks)
        for each in CASES
        for num_in in (32, 64, 96, 160, 224, 256, NUM_IN)  # blocks are written in fours or alone
        if num_in % FORMATS[each.values[0]].block_len == 0
    ],
    ids=named,
)
def test_a_product_is_near_float64(weight_format: str, machine: Machine, num_in: int) -> None:
    """Within 64 roundings of |W||x|, and half a step of each block more where x becomes digits."""
    source = PackedSource(weight_format, packed(weight_format, 33, num_in, seed=3))
    x = normal(4, 5, num_in)
    weight = source.float32("w").astype(np.float64)
    exact = x.astype(np.float64) @ weight.T
    size, slack = np.abs(x.astype(np.float64)), 64 * EPS * np.abs(x)
    if weight_format in PACKED:
        blocks = size.reshape(len(x), -1, BLOCK_LEN)
        steps = blocks.max(axis=-1, keepdims=True) / (127 << 8 * (machine.num_digits - 1))
        slack = slack + np.broadcast_to(steps / 2, blocks.shape).reshape(size.shape)
    bound = slack @ np.abs(weight).T
    ours = kernels(2, machine)
    got = product(ours, source, x)
    assert np.all(np.abs(got - exact) <= bound)
    np.testing.assert_array_equal(product(ours, source, x[:1]), got[:1])


OTHERS = [Machine.host(each.name) for each in Machine.offered()[1:]]
SHORT = [case(name, machine) for machine in MACHINES for name in PACKED]
OTHERS += [replace(machine, num_digits=INT16.num_digits) for machine in OTHERS]
SHORT += [case(name, machine) for machine in OTHERS for name in ("Q4_1", "Q8_0")]
OF_BYTES = [case("Q8_0", machine) for machine in (*MACHINES, *OTHERS)]
LONG = [(name, machine) for machine in OTHERS for name in PACKED]


def of_set(value: object) -> str | None:
    if isinstance(value, Machine):
        return f"{value.instructions.name}-{value.num_digits}"
    return None


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("num_rows", [1, 2, 5, 8, 16])
@pytest.mark.parametrize("quant", [127, -128])
@pytest.mark.parametrize(("weight_format", "machine"), OF_BYTES, ids=of_set)
def test_the_largest_sums_fit(
    weight_format: str, quant: int, num_rows: int, sign: int, machine: Machine
) -> None:
    """All weights of a block, and the first or second digits of its activations, are as large as
    can be and have one sign."""
    block = np.frombuffer(np.float16(1).tobytes() + np.int8(quant).tobytes() * 32, np.uint8)
    source = PackedSource(weight_format, np.tile(block, (17, 8)))
    x = np.full((num_rows, 256), sign, np.float32)
    np.testing.assert_array_equal(product(kernels(2, machine), source, x), 256 * quant * sign)
    x[:, np.arange(256) % BLOCK_LEN > 0] *= (100 * 256 + 128) / (127 * 256)
    expected = product_of_digits(source, x, machine.num_digits)
    np.testing.assert_array_equal(product(kernels(2, machine), source, x), expected)


@pytest.mark.soak
@pytest.mark.parametrize(("weight_format", "machine"), LONG, ids=of_set)
def test_every_instruction_set_gives_the_documented_bits_in_every_format(
    weight_format: str, machine: Machine
) -> None:
    test_every_instruction_set_gives_the_documented_bits(weight_format, machine)


@pytest.mark.parametrize(("weight_format", "machine"), SHORT, ids=of_set)
def test_every_instruction_set_gives_the_documented_bits(
    weight_format: str, machine: Machine
) -> None:
    """Also for as many rows as the widest tiles have, and for an output that fills no tile."""
    source = PackedSource(weight_format, packed(weight_format, 33, 512, seed=7))
    x = normal(8, 33, 512)
    x[:, ::100] *= 50
    expected = product_of_digits(source, x, machine.num_digits)
    for num_rows in (1, 3, *range(9, 16), 17, 33):
        got = product(kernels(2, machine), source, x[:num_rows])
        np.testing.assert_array_equal(got, expected[:num_rows])


def product_of_digits(source: PackedSource, x: F32, num_digits: int) -> F32:
    """The documented product: exact sums within blocks, added as floats in the order of blocks."""
    most = np.float32(127 << 8 * (num_digits - 1))
    blocks = x.reshape(len(x), -1, BLOCK_LEN)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    whole = np.rint(blocks * (most / largest)).astype(np.int64)
    scale = (largest / most)[..., 0]  # [rows, blocks]
    total = np.zeros((len(x), len(source.data)), np.float32)
    for first, quants, d, c in runs_of(source):
        block, at = divmod(first, BLOCK_LEN)
        digits = whole[:, block, at : at + quants.shape[1]]
        if c is not None:
            sum_of_block = whole[:, block].sum(axis=-1).astype(np.float32) * scale[:, block]
            total = fused(c[None, :], sum_of_block[:, None], total)
        sums = (digits @ quants.T).astype(np.float32) * d[None, :]
        total = fused(sums, scale[:, block, None], total)
    return total


def fused(a: F32, b: F32, c: F32) -> F32:
    """a·b + c, rounded once: the product is exact in float64, the sum is rounded to odd there."""
    product, c = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    is_even = total.view(np.int64) % 2 == 0
    odd = np.nextafter(total, np.copysign(np.inf, error))
    return np.where((error != 0) & is_even, odd, total).astype(np.float32)


def product_in_sixteen_lanes(weight: F32, x: F32) -> F32:
    """Element k goes to lane k mod 16, in ascending order; lanes are folded in halves."""
    lanes = np.zeros((len(x), len(weight), 16), np.float32)
    for first in range(0, x.shape[1], 16):
        group = slice(first, first + 16)
        lanes = fused(weight[None, :, group], x[:, None, group], lanes)
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


SHAPES = {"avx2": AVX2_OUTPUTS, "avx512": AVX512_OUTPUTS, "odd": (4, 2, 1)}


@pytest.mark.parametrize("tile_outputs", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    "weight_format",
    ["F32", *(pytest.param(each, marks=pytest.mark.slow) for each in ("F16", "BF16"))],
)
def test_sixteen_lanes_have_the_documented_bits_in_every_shape(
    weight_format: str, tile_outputs: tuple[int, ...]
) -> None:
    """What x86 runs, compiled for this machine: bits depend on neither tile shape nor row count."""
    wide = kernels(machine=Machine(16, tile_outputs))
    source = PackedSource(weight_format, packed(weight_format, 17, 512, seed=5))
    x, weight = normal(6, 9, 512), source.float32("w")
    exact, times = product_in_sixteen_lanes(weight, x), products(wide, source)
    for num_rows in range(1, 10):
        np.testing.assert_array_equal(times(x[:num_rows]), exact[:num_rows])


@pytest.mark.parametrize(
    "weight_format", [pytest.param(n, marks=case(n, HOST).marks) for n in FORMATS]
)
def test_embedded_rows_are_the_tables(weight_format: str) -> None:
    """Bit for bit: (q − offset)·d + c is rounded once."""
    source = PackedSource(weight_format, packed(weight_format, 50, 512))
    table, chosen = kernels().load_matrix(source, ["w"]), [3, 49, 0, 3]
    expected = source.float32("w")
    if weight_format in PACKED:
        np.testing.assert_allclose(runs_as_floats(source), expected, rtol=1e-6, atol=1e-8)
        expected = runs_as_floats(source)
    np.testing.assert_array_equal(embedded(kernels(), table, chosen), expected[chosen])


def runs_as_floats(source: PackedSource) -> F32:
    runs = []
    for _, quants, d, c in runs_of(source):
        least = np.zeros_like(d) if c is None else c
        runs.append(fused(quants.astype(np.float32), d[:, None], least[:, None]))
    return np.concatenate(runs, axis=1)


def embedded(kernels: CpuKernels, table: object, tokens: list[int]) -> np.ndarray:
    from forerun.kernels import AttentionShape, Plan, PlanRow
    from forerun.types import Span, Tree

    span = Span(0, tuple(tokens), Tree.chain(len(tokens)), ())
    plan = Plan((PlanRow(span, np.arange(len(tokens))),))
    batch = kernels.begin(plan, AttentionShape(1, 1, 2), np.zeros(1))
    return np.asarray(kernels.embed(table, batch))  # type: ignore[arg-type]


@pytest.mark.parametrize("weight_format", ["Q5_0", "Q5_1"])
def test_other_formats_are_held_as_q8_0(weight_format: str) -> None:
    source = PackedSource(weight_format, packed(weight_format, 24, 64))
    matrix = kernels().load_matrix(source, ["w"])
    assert [part.weight_format for part in matrix.parts] == ["Q8_0"]
    x = normal(1, 2, 64)
    exact = x @ source.float32("w").T
    np.testing.assert_allclose(
        product(kernels(), source, x), exact, atol=0.02 * np.abs(exact).max()
    )


@pytest.mark.parametrize("machine", MACHINES, ids=named)
def test_an_infinite_or_missing_activation_shows(machine: Machine) -> None:
    """NaN and infinity are not lost when activations become digits, whichever block they are in."""
    source = PackedSource("Q8_0", packed("Q8_0", 16, 160))
    x = normal(1, 5, 160)
    x[0, 75] = x[1, 135] = np.nan  # among four blocks, and in one alone
    x[2, 75] = x[3, 135] = np.inf
    got = product(kernels(2, machine), source, x)
    assert np.isnan(got[:2]).all()
    assert not np.isfinite(got[2:4]).any()
    assert np.isfinite(got[4]).all()


@pytest.mark.parametrize("machine", MACHINES, ids=named)
def test_zero_activations_give_zero(machine: Machine) -> None:
    source = PackedSource("Q4_1", packed("Q4_1", 16, 160))
    assert not product(kernels(2, machine), source, np.zeros((3, 160), np.float32)).any()


@pytest.mark.parametrize(
    ("weight_format", "machine"),
    [case(name, machine) for name in ("Q8_0", "Q4_1", "Q4_K", "Q6_K") for machine in MACHINES],
    ids=named,
)
@pytest.mark.parametrize("size", [2.0**-99, 1e-33, 1e-36])
def test_tiny_activations_give_next_to_nothing(
    weight_format: str, size: float, machine: Machine
) -> None:
    """They give the right result or zero, and leave a row of the usual size its bits."""
    source = PackedSource(weight_format, packed(weight_format, 16, 256))
    ours = kernels(2, machine)
    x = normal(1, 2, 256)
    usual = product(ours, source, x[:1])
    x[1] *= np.float32(size)
    got = product(ours, source, x)
    np.testing.assert_array_equal(got[:1], usual)
    weight = source.float32("w").astype(np.float64)
    error, size_of = np.abs(got[1] - x[1] @ weight.T), np.abs(x[1]) @ np.abs(weight).T
    slack = 2e-2 if machine.num_digits == 1 else 1e-3
    assert np.all((got[1] == 0) | (error <= slack * size_of))


@pytest.mark.parametrize(("weight_format", "machine"), CASES, ids=named)
def test_a_product_has_the_same_bits_in_any_order(weight_format: str, machine: Machine) -> None:
    source = PackedSource(weight_format, packed(weight_format, 97, 512))
    x, order = normal(7, 16, 512), np.random.default_rng(8).permutation(16)
    one = products(kernels(1, machine), source)
    alone = np.concatenate([one(x[t : t + 1]) for t in range(16)])
    np.testing.assert_array_equal(product(kernels(2, machine), source, x[order]), alone[order])


@pytest.mark.parametrize("num_out", [1, 2, 3])
def test_what_pads_the_outputs_of_a_tiny_matrix_stays_zero(num_out: int) -> None:
    """0 × inf is NaN: it must not stay in the padding of a buffer that is used again."""
    k = kernels()
    narrow = k.load_matrix(ArraySource({"w": normal(1, num_out, 64)}), ["w"])
    back = k.load_matrix(ArraySource({"w": normal(2, 8, num_out)}), ["w"])
    np.asarray(k.linear(k.rows(np.full((2, 64), np.inf, np.float32)), narrow))
    for _ in range(2):
        got = np.asarray(k.linear(k.rows(normal(3, 2, num_out)), back))
        assert np.isfinite(got).all()


@pytest.mark.parametrize("machine", MACHINES, ids=named)
def test_digits_leave_nothing_in_what_pads_other_rows(machine: Machine) -> None:
    """Rows may get the memory of records of the same size, and their padding must be zero."""
    k = kernels(1, machine)
    product(k, PackedSource("Q8_0", packed("Q8_0", 16, 96)), normal(1, 3, 96))
    for width in (24, 48, 72):
        rows = k.rows(normal(2, 3, width))
        whole = np.ctypeslib.as_array(
            (ctypes.c_float * (rows.stride // 4 * 3)).from_address(rows.address)
        )
        assert not whole.reshape(3, -1)[:, width:].any()
