"""The steps that write keys and values to the cache, and those that attend to them."""

from __future__ import annotations

import weakref
from functools import cached_property

from forerun.kernels.base import AttentionShape, Norm
from forerun.kernels.cpu.attention.attend import tokens_per_chunk
from forerun.kernels.cpu.attention.kv_store import KVStore
from forerun.kernels.cpu.attention.rope import TOKENS_TOGETHER
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.library import Library, RowOperations
from forerun.kernels.cpu.products.digits import BLOCK_LEN
from forerun.kernels.cpu.row_digits import RowDigits
from forerun.kernels.cpu.runtime.batch import CpuBatch
from forerun.kernels.cpu.runtime.program import Rows, float_bits
from forerun.kernels.cpu.runtime.workers import Workers
from forerun.types import IntArray


class Attending:
    _kv_cache_dtype: str
    _machine: Machine
    _library: Library
    _workers: Workers
    _digits: RowDigits

    @cached_property
    def row_type(self) -> str:
        """The type of all models' keys and values: `kv_cache_dtype`, or for "auto" float16 if the
        first model's weights are packed and its activations have 8 bits, else float32."""
        if self._kv_cache_dtype != "auto":
            return self._kv_cache_dtype
        is_rounded = self._digits.are_needed and self._machine.num_digits == 1
        return "float16" if is_rounded else "float32"

    @cached_property
    def _row_operations(self) -> RowOperations:
        return self._library.row_operations(self.row_type)

    def new_store(self, shape: AttentionShape, num_layers: int, num_slots: int) -> KVStore:
        store = KVStore.new(shape, num_layers, num_slots, self.row_type)
        # A pass that was begun early holds the store's memory until the pass is dropped.
        weakref.finalize(store, self._workers.drop)
        return store

    def row_bytes(self, shape: AttentionShape, num_layers: int) -> int:
        return KVStore.row_bytes(shape, num_layers, self.row_type)

    def move_rows(self, store: KVStore, sources: IntArray, targets: IntArray) -> None:
        self._workers.drop()  # a pass that was begun early may write to these rows
        store.move_rows(sources, targets)

    def rope_write(
        self,
        qkv: Rows,
        batch: CpuBatch,
        store: KVStore,
        layer: int,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> Rows:
        shape, program = batch.shape, qkv.program
        q = Rows(program, qkv.num_rows, shape.q_len, shape.num_heads)
        program.hold(q_norm, k_norm, store, batch)
        program.need_scratch(4 * shape.head_dim)
        norms = (q_norm, k_norm)
        weights = [0 if norm is None else norm.weight.address for norm in norms]
        eps = [0 if norm is None else float_bits(norm.eps) for norm in norms]
        kv = (batch.write_slots_address, *store.addresses[layer], batch.turns_address)
        rest = (*kv, *weights, *eps, store.head_bytes, qkv.num_rows)
        operation, places = self._row_operations.rope_write, (*qkv.place, *q.place)
        num_chunks = -(-qkv.num_rows // TOKENS_TOGETHER) * shape.num_kv_heads
        program.add(operation, num_chunks, *batch.heads, *places, *rest)
        return q

    def attend(self, q: Rows, batch: CpuBatch, store: KVStore, layer: int) -> Rows:
        shape, program = batch.shape, q.program
        out = Rows(program, q.num_rows, shape.q_len)
        program.need_scratch(batch.scratch_bytes)
        program.hold(store, batch)
        heads = shape.num_heads, shape.num_kv_heads, self._workers.num_threads
        is_shared = batch.is_alone and shape.window is None
        is_narrow = self._machine.instructions.num_outputs == 4
        per_chunk = tokens_per_chunk(q.num_rows, *heads, is_shared=is_shared, is_narrow=is_narrow)
        num_chunks = -(-q.num_rows // per_chunk) * shape.num_kv_heads
        kv, sizes = (*store.addresses[layer], batch.keys_address), (q.num_rows, per_chunk)
        places = (*q.place, *kv, *out.place, store.head_bytes)
        records = self._digits.written_with(out) if shape.head_dim % BLOCK_LEN == 0 else ()
        operation, rest = self._row_operations.attend, (*places, *sizes, *records)
        program.add(operation, num_chunks, *batch.heads, *rest)
        return out
