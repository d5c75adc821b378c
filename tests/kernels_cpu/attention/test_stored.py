"""Keys and values stored as float16: rounded when they are written, exact when they are read."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.errors import InvalidOption
from forerun.kernels import AttentionShape, Plan
from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.types import Span, Tree
from tests.contracts.kernel_sets import CACHE_DIR, KernelSet
from tests.contracts.test_kernel_attention import InARow, attend_in_chunks
from tests.kernels.sources import F32, ArraySource, normal
from tests.kernels_cpu.packed import PackedSource, packed

BEST, *OTHERS = (each.name for each in Machine.offered())
SETS = [BEST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
SPECIAL = (
    *(0.0, -0.0, 1.0, -1.5, 3.14159, 65504.0, 65519.9, 65520.0, -1e9, np.inf, -np.inf, np.nan),
    *(6.1e-5, 6e-8, 2.0**-25, 1.001 * 2.0**-25, 1e-30, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 2049.0),
)


def kernels(row_type: str, instruction_set: str | None = None) -> CpuKernels:
    return CpuKernels(kv_cache_dtype=row_type, cache_dir=CACHE_DIR, instruction_set=instruction_set)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("heads", [(9, 3, 64), (4, 2, 48), (5, 1, 6)], ids=str)
def test_numbers_that_float16_has_give_the_same_attention(
    heads: tuple[int, int, int], instruction_set: str
) -> None:
    """Bit for bit, in passes of one token and of many, wherever their rows lie."""
    shape = AttentionShape(*heads)
    qkv = normal(7, 300, shape.q_len + 2 * shape.kv_len).astype(np.float16).astype(np.float32)
    found = list[F32]()
    for row_type in ("float32", "float16"):
        k = kernels(row_type, instruction_set)
        ks = KernelSet(k, put=k.rows, get=np.asarray)
        found.append(attend_in_chunks(ks, shape, qkv, [0, 1, 6, 22, 100, 299], seed=1))
    wide, half = found
    np.testing.assert_array_equal(wide, half)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("head_dim", [20, 32])
def test_they_are_rounded_to_the_nearest_that_is_no_infinity(
    head_dim: int, instruction_set: str
) -> None:
    """Whether they are converted in groups of 16 or one by one."""
    numbers = np.resize(np.array(SPECIAL, np.float32), head_dim)
    shape, k = AttentionShape(1, 1, head_dim), kernels("float16", instruction_set)
    qkv = np.concatenate([np.zeros(head_dim), numbers, numbers])[None].astype(np.float32)
    plan = Plan.build([(Span(0, (0,), Tree.chain(1), ()), InARow(3))])
    batch, store = k.begin(plan, shape, np.zeros(head_dim // 2)), k.new_store(shape, 1, 16)
    # A rotation by 0 computes x·1 - y·0, which is NaN where y is infinite.
    half, is_finite = head_dim // 2, np.isfinite(numbers)
    partner = np.concatenate([is_finite[half:], is_finite[:half]])
    _ = np.asarray(k.rope_write(k.rows(qkv), batch, store, 0))
    wanted = np.clip(numbers, -65504, 65504).astype(np.float16)
    np.testing.assert_array_equal(store.v[0, 0, 3, :head_dim], wanted)
    keys = store.k[0, 0, 0, :head_dim, 3]
    np.testing.assert_array_equal(keys[is_finite & partner], wanted[is_finite & partner])
    assert store.k.dtype == store.v.dtype == np.float16
    assert not store.v[0, 0, 3, head_dim:].any()


@pytest.mark.parametrize(
    ("activations", "weight_format", "asked", "row_type"),
    [
        (None, "Q4_1", "auto", "float16"),
        ("int8", "Q4_1", "auto", "float16"),
        ("int16", "Q4_1", "auto", "float32"),
        (None, "F32", "auto", "float32"),
        (None, "Q4_1", "float32", "float32"),
        (None, "F32", "float16", "float16"),
    ],
)
def test_the_default_is_as_close_as_the_activations_are(
    activations: str | None, weight_format: str, asked: str, row_type: str
) -> None:
    k = CpuKernels(activations=activations, kv_cache_dtype=asked, cache_dir=CACHE_DIR)
    if weight_format == "F32":
        k.load_matrix(ArraySource({"w": normal(1, 16, 32)}), ["w"])
    else:
        k.load_matrix(PackedSource(weight_format, packed(weight_format, 16, 32, seed=1)), ["w"])
    shape = AttentionShape(2, 1, 64)
    assert k.row_type == row_type
    assert k.new_store(shape, 1, 16).v.dtype == row_type
    assert k.row_bytes(shape, 3) == 2 * 3 * 64 * np.dtype(row_type).itemsize


def test_floats_that_are_packed_on_load_count_as_packed_and_later_models_have_the_same() -> None:
    k = CpuKernels(quantization="int8", cache_dir=CACHE_DIR)
    with k.loading(1):
        k.load_matrix(ArraySource({"w": normal(1, 16, 32)}), ["w"])
    assert k.row_type == "float16"
    k = CpuKernels(cache_dir=CACHE_DIR)
    with k.loading(1):
        k.load_matrix(ArraySource({"w": normal(1, 16, 32)}), ["w"])
    with k.loading(1):
        k.load_matrix(PackedSource("Q4_1", packed("Q4_1", 16, 32, seed=1)), ["w"])
    assert k.row_type == "float32"


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"kv_cache_dtype 'float18'.*did you mean 'float16'"):
        CpuKernels(1, kv_cache_dtype="float18", cache_dir=CACHE_DIR)
