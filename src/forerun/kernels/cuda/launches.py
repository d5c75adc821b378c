"""Launches of the kernels, each with its grid, tile and options."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
import triton
from torch import Tensor

from forerun.kernels.base import AttentionShape, Norm
from forerun.kernels.cuda.attention import SPLIT_LENS, attend_split, fold_splits
from forerun.kernels.cuda.passes.inputs import Inputs
from forerun.kernels.cuda.products.product import (
    gated_product,
    plain_product,
    residual_product,
    rotary_product,
)
from forerun.kernels.cuda.products.tiles import (
    NUM_MULTIPROCESSORS,
    RESIDUAL_COLUMNS,
    SHARED_BYTES,
    Kind,
    Tile,
    block_m,
    residual_columns,
    tile_for,
)
from forerun.kernels.cuda.row_kernels import (
    READ_LEN,
    embed_rows,
    norm_rows,
    read_words,
    rope_rows,
    silu_rows,
)
from forerun.kernels.cuda.values import Normed, Rows
from forerun.kernels.cuda.weights import Matrix

_SILU_LEN: Final = 1024
_LONG_HEAD: Final = 64  # dimensions; attention has twice the warps for longer heads
_FEW_LONG: Final = 32  # programs of attention over such heads, measured at Llama-3.2-3B's shape


@dataclass(frozen=True)
class Launches:
    """Launches kernels. `overlap`: a kernel may begin while the previous one ends (compute
    capability 9 and up)."""

    dtype: torch.dtype  # of products' operands and of the cache
    overlap: bool
    shared_bytes: int = SHARED_BYTES  # shared memory that a block may have

    def embed(self, table: Matrix, inputs: Inputs, drawn: Tensor) -> Tensor:
        width, num = table.num_in, inputs.num_tokens
        stream = _empty(table.weight, (num, width), torch.float32)
        block = triton.next_power_of_2(width)
        embed_rows[(num,)](
            table.weight, table.scales, inputs.tokens, drawn, stream, table.num_out, width, block,
            table.group, **self.options,
        )  # fmt: skip
        return stream

    def norm(self, x: Rows, delta: Tensor | None, norm: Norm) -> tuple[Tensor, Normed]:
        num, width = x.num_rows, x.data.shape[1]
        stream = x.data if x.chosen is None else _empty(x.data, (num, width), torch.float32)
        normed = self.new_normed(stream, norm)
        groups = normed.squares.shape[1]
        norm_rows[(num,)](
            x.data, delta, x.chosen, stream, norm.weight, normed.scaled, normed.squares,
            width, triton.next_power_of_2(width), groups, triton.next_power_of_2(groups),
            delta is not None, x.chosen is not None, self._shrink, **self.options,
        )  # fmt: skip
        return stream, normed

    def residual(
        self, stream: Tensor, x: Tensor, matrix: Matrix, chosen: Tensor | None, norm: Norm
    ) -> tuple[Tensor, Normed]:
        """Return stream + x · matrixᵀ, in place unless rows are chosen, and its norm."""
        num, width = len(x) if chosen is None else len(chosen), matrix.num_out
        out = stream if chosen is None else _empty(stream, (num, width), torch.float32)
        tile = self._tile(Kind.RESIDUAL, matrix, num)
        columns = residual_columns(width, matrix.num_in, matrix.group)
        normed = self.new_normed(out, norm, columns)
        num_tiles = -(-normed.squares.shape[1] // tile.groups)
        residual_product[(num_tiles, -(-num // tile.block_m))](
            x, matrix.weight, matrix.scales, matrix.bias, chosen, stream, out, norm.weight,
            normed.scaled, normed.squares, num, width, matrix.num_in,
            matrix.bias is not None, chosen is not None, tile.block_n, tile.block_m,
            USED=columns, GROUPS=tile.groups, SHRINK=self._shrink,
            **self._tile_options(Kind.RESIDUAL, tile, matrix),
        )  # fmt: skip
        return out, normed

    def plain(self, x: Rows | Normed, matrix: Matrix) -> Tensor:
        num, width = x.num_rows, matrix.num_out
        tile = self._tile(Kind.PLAIN, matrix, num)
        y = _empty(matrix.weight, (num, width), torch.float32)
        if num == 0:
            return y
        plain_product[(-(-width // tile.block_n), -(-num // tile.block_m))](
            *self._operands(x, matrix), y, num, _eps(x), width, matrix.num_in,
            *_norm_shape(x), matrix.bias is not None, tile.block_n, tile.block_m,
            **self._tile_options(Kind.PLAIN, tile, matrix),
        )  # fmt: skip
        return y

    def gated(self, x: Rows | Normed, matrix: Matrix) -> Tensor:
        num, width = x.num_rows, matrix.num_out // 2
        tile = self._tile(Kind.GATED, matrix, num)
        y = _empty(matrix.weight, (num, width), self.dtype)
        gated_product[(-(-width // tile.block_n), -(-num // tile.block_m))](
            *self._operands(x, matrix), y, num, _eps(x), width, matrix.num_in,
            *_norm_shape(x), matrix.bias is not None, tile.block_n, tile.block_m,
            **self._tile_options(Kind.GATED, tile, matrix),
        )  # fmt: skip
        return y

    def rotary(
        self,
        x: Rows | Normed,
        matrix: Matrix,
        inputs: Inputs,
        shape: AttentionShape,
        layer: tuple[Tensor, Tensor],
    ) -> Tensor:
        num = x.num_rows
        tile = self._tile(Kind.ROTARY, matrix, num)
        q = _empty(matrix.weight, (num, shape.q_len), self.dtype)
        num_heads = shape.num_heads + 2 * shape.num_kv_heads
        per_head = -(-(shape.head_dim // 2) // tile.block_n)
        rotary_product[(num_heads * per_head, -(-num // tile.block_m))](
            *self._operands(x, matrix), q, *layer, inputs.slots, inputs.rotations, num, _eps(x),
            shape.num_heads, shape.num_kv_heads, shape.head_dim, matrix.num_in,
            *_norm_shape(x), matrix.bias is not None, tile.block_n, tile.block_m,
            **self._tile_options(Kind.ROTARY, tile, matrix),
        )  # fmt: skip
        return q

    def rope(
        self,
        qkv: Tensor,
        inputs: Inputs,
        shape: AttentionShape,
        layer: tuple[Tensor, Tensor],
        q_norm: Norm | None,
        k_norm: Norm | None,
    ) -> Tensor:
        q = _empty(qkv, (len(qkv), shape.q_len), self.dtype)
        num_heads = shape.num_heads + 2 * shape.num_kv_heads
        rope_rows[(len(qkv), num_heads)](
            qkv, None if q_norm is None else q_norm.weight,
            None if k_norm is None else k_norm.weight,
            inputs.rotations, inputs.slots, q, *layer,
            0.0 if q_norm is None else q_norm.eps, 0.0 if k_norm is None else k_norm.eps,
            shape.num_heads, shape.num_kv_heads, shape.head_dim,
            triton.next_power_of_2(shape.head_dim // 2), q_norm is not None, k_norm is not None,
            **self.options,
        )  # fmt: skip
        return q

    def attend(
        self,
        q: Tensor,
        inputs: Inputs,
        shape: AttentionShape,
        layer: tuple[Tensor, Tensor],
        num_splits: int,
    ) -> Tensor:
        num, out = len(q), torch.empty_like(q)
        H, G, D = shape.num_heads, shape.num_kv_heads, shape.head_dim
        only = num_splits == 1
        num_parts = 1 if only else num * num_splits * H
        mixed, sums, tops = (
            _empty(q, (num_parts, width), torch.float32) for width in (D, 1, 1)
        )  # fmt: skip
        block_d = max(16, triton.next_power_of_2(D))
        window = shape.window or 0
        early = _is_early(num, shape)
        attend_split[(num, G, num_splits)](
            q, *layer, inputs.starts, inputs.firsts, inputs.lengths, inputs.own_firsts,
            inputs.num_keys, inputs.key_slots, out, mixed, sums, tops,
            math.log2(math.e) / math.sqrt(D), H, G, D, window,
            max(16, triton.next_power_of_2(H // G)), block_d, self.split_len,
            only, early, self._precision,
            num_warps=8 if D > _LONG_HEAD else 4,
            maxnreg=None if early else 128, **self.options,
        )  # fmt: skip
        if not only:
            fold_splits[(num, H)](
                mixed, sums, tops, inputs.num_keys, out, num_splits,
                H, D, window, block_d, self.split_len, num_warps=1, **self.options,
            )  # fmt: skip
        return out

    def silu(self, gate_up: Tensor) -> Tensor:
        num, width = len(gate_up), gate_up.shape[1] // 2
        y = _empty(gate_up, (num, width), self.dtype)
        grid = (num, -(-width // _SILU_LEN))
        silu_rows[grid](gate_up, y, width, _SILU_LEN, **self.options)
        return y

    @property
    def split_len(self) -> int:
        """Keys of a split: a constant of the dtype, because it decides bits."""
        return SPLIT_LENS[self.dtype.itemsize]

    def num_splits(self, num_keys: int) -> int:
        """Return how many splits cover the keys: a power of two, so few graphs fit all lengths."""
        return 1 << (-(-num_keys // self.split_len) - 1).bit_length()

    def kernels_of(
        self, num_tokens: int, num_wanted: int, num_splits: int, shape: AttentionShape
    ) -> tuple[int, int, bool, bool]:
        """Return a key: passes of one model with equal keys launch the same compiled kernels."""
        itemsize = self.dtype.itemsize
        wanted = block_m(num_wanted, itemsize) if num_wanted else 0
        is_early = _is_early(num_tokens, shape)
        return block_m(num_tokens, itemsize), wanted, num_splits == 1, is_early

    def read(self, data: Tensor) -> None:
        """Read all of `data` once: int32, its length a multiple of `READ_LEN`."""
        sums = _empty(data, (len(data) // READ_LEN,), torch.int32)
        read_words[(len(sums),)](data, sums, READ_LEN, num_warps=8, **self.options)

    @property
    def _shrink(self) -> float:
        """A power of two that scales rows before a product: they are divided by their norm only
        after it, and must fit into float16 until then."""
        return 2.0**-4 if self.dtype == torch.float16 else 1.0

    @property
    def _precision(self) -> str:
        """How products of float32 operands are computed; it has no effect on shorter dtypes."""
        return "ieee"

    def new_normed(self, stream: Tensor, norm: Norm, columns: int = RESIDUAL_COLUMNS) -> Normed:
        """Allocate a norm's input, with one sum of squares for every `columns` columns."""
        num, width = stream.shape
        squares = _empty(stream, (num, -(-width // columns)), torch.float32)
        eps = norm.eps * self._shrink**2
        return Normed(_empty(stream, (num, width), self.dtype), squares, eps)

    def _operands(self, x: Rows | Normed, matrix: Matrix) -> tuple[Any, ...]:
        if isinstance(x, Normed):
            return x.scaled, x.squares, matrix.weight, matrix.scales, matrix.bias
        assert x.chosen is None, "rows are chosen before a norm alone"
        return x.data.to(self.dtype), None, matrix.weight, matrix.scales, matrix.bias

    def _tile(self, kind: Kind, matrix: Matrix, num_rows: int) -> Tile:
        itemsize = self.dtype.itemsize
        tile = tile_for(kind, matrix.num_out, matrix.num_in, num_rows, itemsize, matrix.group)
        return tile.within(kind, self.shared_bytes, matrix.weight.element_size(), itemsize)

    @property
    def options(self) -> dict[str, Any]:
        return {"PDL": 1, "launch_pdl": True} if self.overlap else {"PDL": 0}

    def _tile_options(self, kind: Kind, tile: Tile, matrix: Matrix) -> dict[str, Any]:
        num_in, itemsize = matrix.num_in, matrix.weight.element_size()
        segments = tile.segments
        options = {
            "GROUP": matrix.group,
            "BY_SUM": tile.by_sum,
            "HELD": tile.held,
            "BK": tile.block_k // segments,
            "SEGMENTS": segments,
            "EVEN": num_in % tile.block_k == 0,
            "PRECISION": self._precision,
            "PIECES": tile.pieces(kind, num_in, itemsize),
            "PIECE_LEN": tile.piece_len(kind, num_in),
            "num_warps": tile.num_warps,
            "num_stages": tile.num_stages,
        }
        late = {"PDL": 2} if self.overlap and not tile.early else {}
        return self.options | options | late


def _is_early(num_tokens: int, shape: AttentionShape) -> bool:
    """Whether attention may load old keys early, for which a program takes twice the registers.

    It may if each program has a multiprocessor to itself; otherwise two programs should share one.
    With long heads a program takes all registers of a multiprocessor, and the next product needs
    some too, so fewer programs may.
    """
    most = _FEW_LONG if shape.head_dim > _LONG_HEAD else NUM_MULTIPROCESSORS
    return num_tokens * shape.num_kv_heads <= most


def _empty(like: Tensor, size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(size, dtype=dtype, device=like.device)


def _eps(x: Rows | Normed) -> float:
    return x.eps if isinstance(x, Normed) else 0.0


def _norm_shape(x: Rows | Normed) -> tuple[int, int]:
    num = x.squares.shape[1] if isinstance(x, Normed) else 0
    # With at least 128 lanes, how a row is spread over threads does not depend on other rows.
    return num, max(128, triton.next_power_of_2(max(1, num)))
