"""The reference kernels: numpy, one row at a time; slow, exact, the oracle of other kernel sets.

Bits cannot depend on the batch because no operation sees it: each product is a matrix times one
row, each attention one query against its own keys. Numpy's routines may still choose an algorithm
by shape or alignment, so shapes depend on the token alone, and rows are copied to aligned buffers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.kernels import one_row
from forerun.kernels.base import AttentionShape, Body, Norm, WeightSource
from forerun.kernels.host_memory import require_memory
from forerun.kernels.key_walk import Query, queries_of
from forerun.kernels.plan import Plan
from forerun.kernels.scores import Scores
from forerun.sampling import CoupledDraws, Logits, Noise, gumbel_argmax, weight_sum
from forerun.types import FloatArray, IntArray

ALIGNMENT: Final = 64
# A slice of a matrix stays in the processor's cache while it is multiplied with every row. Larger
# slices start OpenBLAS's threads, and times scatter widely on a shared machine (docs/kernels.md).
SLICE_BYTES: Final = 1 << 20


def aligned_empty(shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(num_bytes + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + num_bytes].view(dtype).reshape(shape)


@dataclass(frozen=True)
class Matrix:
    weight: FloatArray  # [out, in]
    bias: FloatArray | None  # [out]
    row_in: FloatArray  # [in]: the aligned buffer to which each row is copied for a product
    row_out: FloatArray  # [out]: the aligned buffer of its result

    @property
    def slices(self) -> list[slice]:
        """Runs of outputs; they depend on the matrix's shape alone."""
        num_out, num_in = self.weight.shape
        step = max(1, SLICE_BYTES // (num_in * self.weight.itemsize))
        return [slice(lo, min(lo + step, num_out)) for lo in range(0, num_out, step)]


@dataclass(frozen=True)
class KVStore:
    k: FloatArray  # [L, slots, G, head_dim]
    v: FloatArray  # [L, slots, G, head_dim]


@dataclass(frozen=True)
class ReferenceBatch:
    plan: Plan
    shape: AttentionShape
    cos: FloatArray  # [T, head_dim / 2]
    sin: FloatArray  # [T, head_dim / 2]
    queries: tuple[Query, ...]  # [T]
    keys: FloatArray  # [most keys, G, head_dim]
    values: FloatArray  # [most keys, G, head_dim]
    given: tuple[FloatArray, ...] = ()
    tapped: list[npt.NDArray[np.float32]] = field(default_factory=list)


class ReferenceKernels:
    """Numpy kernels in float32, or float64 for oracles. Loading expands the weights."""

    name = "reference"
    begins_plain = begins_early = begins_rounds = False
    head_start = 0.0

    def __init__(self, dtype: npt.DTypeLike = np.float32) -> None:
        self._dtype = np.dtype(dtype)

    def loading(self, _num_tensors: int) -> AbstractContextManager[None]:
        return nullcontext()

    def load_vector(self, source: WeightSource, name: str) -> FloatArray:
        return self._expanded(source, [name])

    def load_matrix(
        self, source: WeightSource, names: Sequence[str], biases: Sequence[str] = ()
    ) -> Matrix:
        assert len(biases) in (0, len(names)), (names, biases)
        weight = self._expanded(source, names)
        bias = self._expanded(source, biases) if biases else None
        num_out, num_in = weight.shape
        row_in, row_out = self._empty(num_in), self._empty(num_out)
        return Matrix(weight, bias, row_in, row_out)

    def _expanded(self, source: WeightSource, names: Sequence[str]) -> FloatArray:
        shapes = [source.tensor(name).shape for name in names]
        stacked = self._empty(sum(shape[0] for shape in shapes), *shapes[0][1:])
        first = 0
        for name, shape in zip(names, shapes, strict=True):
            stacked[first : first + shape[0]] = source.float32(name)
            first += shape[0]
        return stacked

    def _empty(self, *shape: int) -> FloatArray:
        return aligned_empty(shape, self._dtype)

    def new_store(self, shape: AttentionShape, num_layers: int, num_slots: int) -> KVStore:
        size = (num_layers, num_slots, shape.num_kv_heads, shape.head_dim)
        require_memory(2 * math.prod(size) * self._dtype.itemsize)
        try:
            return KVStore(np.zeros(size, self._dtype), np.zeros(size, self._dtype))
        except ValueError as error:  # more than the address space
            raise MemoryError(str(error)) from error

    def row_bytes(self, shape: AttentionShape, num_layers: int) -> int:
        return 2 * num_layers * shape.kv_len * self._dtype.itemsize

    def free_bytes(self) -> None:
        return None

    def move_rows(self, store: KVStore, sources: IntArray, targets: IntArray) -> None:
        for rows in (store.k, store.v):
            rows[:, targets] = rows[:, sources]  # indexing copies all sources before any write

    def begin(
        self,
        plan: Plan,
        shape: AttentionShape,
        inv_freq: FloatArray,
        given: Sequence[FloatArray] = (),
    ) -> ReferenceBatch:
        cos, sin = np.empty((2, len(plan), shape.head_dim // 2), self._dtype)
        for t, position in enumerate(plan.positions):
            angles = position * inv_freq
            cos[t], sin[t] = np.cos(angles), np.sin(angles)
        queries = tuple(query for row in plan.rows for query in queries_of(row))
        most = max(query.num_keys for query in queries)
        keys, values = (self._empty(most, shape.num_kv_heads, shape.head_dim) for _ in range(2))
        rows = tuple(np.array(each, self._dtype) for each in given)
        return ReferenceBatch(plan, shape, cos, sin, queries, keys, values, rows)

    def gumbel_argmax(self, logits: Logits, noise: Noise, position: int) -> int:
        return gumbel_argmax(logits, noise, position)

    def weight_sum(self, logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
        return weight_sum(logits, top, temperature)

    def run(self, body: Body, batch: ReferenceBatch, store: KVStore) -> npt.NDArray[np.float32]:
        batch.tapped.clear()
        return body(batch, store)

    def draw(
        self, body: Body, batch: ReferenceBatch, store: KVStore, _: Sequence[CoupledDraws | None]
    ) -> Scores:
        return Scores(self.run(body, batch, store))

    def embed(self, table: Matrix, batch: ReferenceBatch) -> FloatArray:
        tokens = batch.plan.tokens
        assert np.all((tokens >= 0) & (tokens < len(table.weight))), tokens
        return table.weight[tokens]

    def add_norm(
        self, x: FloatArray, delta: FloatArray | None, norm: Norm
    ) -> tuple[FloatArray, FloatArray]:
        if delta is not None:
            x += delta
        h = np.empty_like(x)
        for t, row in enumerate(x):
            h[t] = one_row.rms_norm(row, norm.weight, norm.eps)
        return x, h

    def linear(self, x: FloatArray, matrix: Matrix) -> FloatArray:
        y = np.empty((len(x), len(matrix.weight)), self._dtype)  # [T, out]
        for part in matrix.slices:
            weight, row_out = matrix.weight[part], matrix.row_out[part]
            for t, row in enumerate(x):
                matrix.row_in[:] = row
                np.dot(weight, matrix.row_in, out=row_out)
                y[t, part] = row_out
        if matrix.bias is not None:
            y += matrix.bias
        return y

    def rope_write(
        self,
        qkv: FloatArray,
        batch: ReferenceBatch,
        store: KVStore,
        layer: int,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> FloatArray:
        shape = batch.shape
        v_first = shape.num_heads + shape.num_kv_heads
        q_out = np.empty((len(qkv), shape.q_len), self._dtype)
        for t, slot in enumerate(batch.plan.write_slots):
            heads = qkv[t].reshape(-1, shape.head_dim)  # [H + 2G, head_dim]
            q, k, v = heads[: shape.num_heads], heads[shape.num_heads : v_first], heads[v_first:]
            if q_norm is not None:
                q = one_row.rms_norm(q, q_norm.weight, q_norm.eps)
            if k_norm is not None:
                k = one_row.rms_norm(k, k_norm.weight, k_norm.eps)
            q_out[t] = one_row.rotate(q, batch.cos[t], batch.sin[t]).reshape(-1)
            store.k[layer, slot] = one_row.rotate(k, batch.cos[t], batch.sin[t])
            store.v[layer, slot] = v
        return q_out

    def attend(
        self, q: FloatArray, batch: ReferenceBatch, store: KVStore, layer: int
    ) -> FloatArray:
        out = np.empty_like(q)
        store_k, store_v = store.k[layer], store.v[layer]
        for t, query in enumerate(batch.queries):
            new = slice(query.keep, query.num_keys)
            np.take(store_k, query.fill, axis=0, out=batch.keys[new], mode="clip")
            np.take(store_v, query.fill, axis=0, out=batch.values[new], mode="clip")
            first = max(0, query.num_keys - (batch.shape.window or query.num_keys))
            seen = slice(first, query.num_keys)
            out[t] = one_row.attend(q[t], batch.keys[seen], batch.values[seen])
        return out

    def silu_mul(self, gate_up: FloatArray) -> FloatArray:
        out = np.empty((len(gate_up), gate_up.shape[1] // 2), self._dtype)
        for t, row in enumerate(gate_up):
            out[t] = one_row.silu_mul(row)
        return out

    def select(self, x: FloatArray, batch: ReferenceBatch) -> FloatArray:
        return x[batch.plan.wanted]

    def given(self, batch: ReferenceBatch, idx: int) -> FloatArray:
        return batch.given[idx].copy()

    def concat(self, parts: Sequence[FloatArray]) -> FloatArray:
        return np.concatenate(parts, axis=1)

    def tap(self, x: FloatArray, batch: ReferenceBatch) -> None:
        batch.tapped.append(x.astype(np.float32))

    def taps(self, batch: ReferenceBatch) -> tuple[npt.NDArray[np.float32], ...]:
        return tuple(batch.tapped)

    def logits(self, x: FloatArray, head: Matrix) -> npt.NDArray[np.float32]:
        return self.linear(x, head).astype(np.float32, copy=False)
