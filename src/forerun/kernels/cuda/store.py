"""The K and V rows of all layers, in the device's memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from forerun.kernels.base import AttentionShape
from forerun.types import IntArray


@dataclass(frozen=True, eq=False)
class KVStore:
    """K and V rows, with one slot more than was asked for: the dump slot, for padding rows."""

    rows: torch.Tensor  # [2, L, slots + 1, G, head_dim]: keys, then values

    @classmethod
    def new(
        cls,
        shape: AttentionShape,
        num_layers: int,
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> KVStore:
        size = (2, num_layers, num_slots + 1, shape.num_kv_heads, shape.head_dim)
        try:
            return cls(torch.zeros(size, dtype=dtype, device=device))
        except RuntimeError as error:  # out of memory, or more than an address can name
            raise MemoryError(f"{num_slots} rows cannot be had: {error}") from error

    @property
    def num_layers(self) -> int:
        return int(self.rows.shape[1])

    @property
    def dump_slot(self) -> int:
        return int(self.rows.shape[2]) - 1

    @property
    def k(self) -> torch.Tensor:
        return self.rows[0, :, :-1]

    @property
    def v(self) -> torch.Tensor:
        return self.rows[1, :, :-1]

    def layer(self, idx: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.rows[0, idx], self.rows[1, idx]

    def move_rows(self, sources: IntArray, targets: IntArray) -> None:
        device = self.rows.device
        moved = self.rows[:, :, torch.as_tensor(sources, device=device)]  # a copy, made first
        self.rows[:, :, torch.as_tensor(targets, device=device)] = moved
