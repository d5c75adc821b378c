"""Attention of every kernel set is near float64 and does not depend on chunks and pages."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest

from forerun.kernels import AttentionShape, Norm, Plan
from forerun.kernels.base import Store
from forerun.kernels.plan import SlotTable
from forerun.types import IntArray, Span, Tree
from tests.contracts.kernel_sets import KERNEL_SETS, KernelSet
from tests.kernels.sources import F32, ArraySource, normal

F64 = npt.NDArray[np.float64]

# [heads, key/value heads, head_dim]: Llama 2, 3 and 3.2, SmolLM2, Qwen2.5, one shared head, odd.
HEADS = (
    (4, 4, 128),
    (8, 2, 128),
    (6, 2, 128),
    (9, 3, 64),
    (12, 2, 128),
    (5, 1, 6),
    (3, 3, 2),
    (4, 2, 48),
    (25, 1, 16),
)
NUM_KEYS = (1, 2, 15, 63, 64, 65, 255, 256, 257, 600)


@pytest.fixture(params=KERNEL_SETS)
def ks(request: pytest.FixtureRequest) -> KernelSet:
    return KERNEL_SETS[request.param]()


class Scattered:
    """A block table whose rows lie anywhere, by a fixed shuffle."""

    def __init__(self, num_slots: int, seed: int) -> None:
        self._order = np.random.default_rng(seed).permutation(num_slots)

    def slots(self, length: int) -> IntArray:
        return self._order[:length]


class InARow:
    """A block table whose rows follow each other, from some slot on."""

    def __init__(self, first: int) -> None:
        self._first = first

    def slots(self, length: int) -> IntArray:
        return np.arange(self._first, self._first + length)


def attend(
    ks: KernelSet, shape: AttentionShape, qkv: F32, start: int, store: Store, table: SlotTable
) -> F32:
    """A chain of rows [T, q_len + 2·kv_len] from `start` on, with no rotation: [T, q_len]"""
    span = Span(start, (0,) * len(qkv), Tree.chain(len(qkv)), ())
    batch = ks.kernels.begin(Plan.build([(span, table)]), shape, np.zeros(shape.head_dim // 2))
    q = ks.kernels.rope_write(ks.put(qkv), batch, store, 1)
    return ks.get(ks.kernels.attend(q, batch, store, 1))


def attend_in_chunks(
    ks: KernelSet, shape: AttentionShape, qkv: F32, starts: Iterable[int], seed: int
) -> F32:
    store, table = ks.kernels.new_store(shape, 2, len(qkv)), Scattered(len(qkv), seed)
    chunks = itertools.pairwise([*starts, len(qkv)])
    return np.concatenate([attend(ks, shape, qkv[lo:hi], lo, store, table) for lo, hi in chunks])


def naive(shape: AttentionShape, qkv: F32) -> F64:
    """The last row's attention over all of them: [q_len]"""
    heads = qkv.astype(np.float64).reshape(len(qkv), -1, shape.head_dim)[-(shape.window or 0) :]
    mixed = []
    for head in range(shape.num_heads):
        key_head = shape.num_heads + head * shape.num_kv_heads // shape.num_heads
        keys, values = heads[:, key_head], heads[:, key_head + shape.num_kv_heads]
        weights = np.exp(keys @ heads[-1, head] / np.sqrt(shape.head_dim))
        mixed.append(weights @ values / weights.sum())
    return np.concatenate(mixed)


@pytest.mark.parametrize(
    ("heads", "window"),
    [
        *((heads, None) for heads in (HEADS[0], *HEADS[3:])),
        *((heads, 40) for heads in HEADS[3:6]),
        *(pytest.param(heads, None, marks=pytest.mark.slow) for heads in HEADS[1:3]),
    ],
    ids=str,
)
def test_attention_is_near_float64_and_blind_to_chunks_and_pages(
    ks: KernelSet, heads: tuple[int, int, int], window: int | None
) -> None:
    shape = AttentionShape(*heads, window)
    qkv = normal(7, max(NUM_KEYS), shape.q_len + 2 * shape.kv_len)
    whole = attend_in_chunks(ks, shape, qkv, [0], seed=1)
    ends = [around for num_keys in NUM_KEYS for around in range(num_keys - 2, num_keys + 2)]
    singles = sorted({start for start in ends if 0 <= start < 600})  # at every length below
    sevens = [*range(0, 70, 7), *range(70, 600, 53)]
    for seed, starts in enumerate((singles, sevens, range(0, 600, 256)), start=2):
        np.testing.assert_array_equal(attend_in_chunks(ks, shape, qkv, starts, seed), whole)
    for num_keys in NUM_KEYS:
        exact = naive(shape, qkv[:num_keys])
        atol = 5e-6 + 4 * ks.row_rounding
        np.testing.assert_allclose(whole[num_keys - 1], exact, rtol=0, atol=atol)


@pytest.mark.parametrize("window", [None, 5, 40])
def test_where_rows_begin_does_not_show(ks: KernelSet, window: int | None) -> None:
    """In the middle of a page, at its start, or scattered: rows get the same bits."""
    shape, num_rows = AttentionShape(*HEADS[3], window), 100
    qkv = normal(5, num_rows, shape.q_len + 2 * shape.kv_len)
    scattered = attend_in_chunks(ks, shape, qkv, [0, 3, 50, 81], seed=1)
    for first in (0, 5, 16, 31):
        store, table = ks.kernels.new_store(shape, 2, num_rows + first), InARow(first)
        for low, high in ((0, 20), (20, 21), (21, 100)):
            got = attend(ks, shape, qkv[low:high], low, store, table)
            np.testing.assert_array_equal(got, scattered[low:high])


@pytest.mark.parametrize("has_norm", [True, False])
@pytest.mark.parametrize("head_dim", [2, 6, 64, 128])
def test_rope_turns_pairs_of_halves_after_the_norm(
    ks: KernelSet, head_dim: int, has_norm: bool
) -> None:
    """Row t is at position t; lane pairs are complex numbers times exp(i · t · frequency)."""
    shape, half = AttentionShape(3, 1, head_dim), head_dim // 2
    qkv, weight = normal(1, 20, 5 * head_dim), normal(2, head_dim)
    inv_freq = 10000.0 ** (-np.arange(half) / half)
    norm = Norm(ks.kernels.load_vector(ArraySource({"w": weight}), "w"), 1e-6) if has_norm else None
    span = Span(0, (0,) * 20, Tree.chain(20), ())
    batch = ks.kernels.begin(Plan.build([(span, Scattered(20, seed=1))]), shape, inv_freq)
    store = ks.kernels.new_store(shape, 1, 20)
    got = ks.get(ks.kernels.rope_write(ks.put(qkv), batch, store, 0, norm, norm))
    heads = qkv.astype(np.float64).reshape(20, 5, head_dim)[:, :3]
    normed = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-6) * weight
    normed = normed if has_norm else heads
    turn = np.exp(1j * np.outer(np.arange(20), inv_freq))[:, None]
    exact = (normed[..., :half] + 1j * normed[..., half:]) * turn
    np.testing.assert_allclose(
        got.reshape(20, 3, -1),
        np.concatenate((exact.real, exact.imag), axis=-1),
        atol=2e-6 + 4 * ks.rounding,
    )


def test_moved_rows_are_read_before_any_is_written(ks: KernelSet) -> None:
    """Rows 1 → 0 and 2 → 1 at once, in either order: each moves by one, none is doubled."""
    shape, qkv = AttentionShape(1, 1, 2), normal(8, 3, 6)
    for sources in ([1, 2], [2, 1]):
        store, table = ks.kernels.new_store(shape, 2, 3), Scattered(3, seed=0)
        attend(ks, shape, qkv, 0, store, table)
        slots, targets = table.slots(3), [row - 1 for row in sources]
        ks.kernels.move_rows(store, slots[sources], slots[targets])
        got = attend(ks, shape, qkv[2:], 2, store, table)
        np.testing.assert_allclose(
            got[0], naive(shape, qkv[[1, 2, 2]]), atol=1e-6 + 4 * ks.row_rounding
        )


@pytest.mark.parametrize("head_dim", [4, 16, 64, 80])
def test_a_store_takes_what_its_rows_take(ks: KernelSet, head_dim: int) -> None:
    shape = AttentionShape(num_heads=6, num_kv_heads=2, head_dim=head_dim)
    store = ks.kernels.new_store(shape, num_layers=3, num_slots=48)
    assert store.k.nbytes + store.v.nbytes == 48 * ks.kernels.row_bytes(shape, num_layers=3)


@pytest.mark.parametrize("num_slots", [1 << 50, 1 << 62])
def test_rows_beyond_all_memory(ks: KernelSet, num_slots: int) -> None:
    """A size that the system refuses, and one that it cannot even be asked for."""
    with pytest.raises(MemoryError):
        ks.kernels.new_store(AttentionShape(1, 1, 128), 1, num_slots)


def test_rows_that_the_machine_cannot_hold_are_refused(
    ks: KernelSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the system would promise them: it would kill the process that writes them."""
    if ks.kernels.name == "cuda":
        pytest.skip("rows are the GPU's")
    shape = AttentionShape(1, 1, 16)
    num_bytes = 1024 * ks.kernels.row_bytes(shape, num_layers=2)
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": num_bytes - 1}  # keys fit, and values do
    monkeypatch.setattr(os, "sysconf", pages.__getitem__, raising=False)
    with pytest.raises(MemoryError, match="more than this machine has"):
        ks.kernels.new_store(shape, 2, 1024)
    pages["SC_PHYS_PAGES"] += 1
    assert ks.kernels.new_store(shape, 2, 1024)
