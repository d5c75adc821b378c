"""Weights in the device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from forerun.kernels.base import WeightSource


@dataclass(frozen=True, eq=False)
class Matrix:
    """[out, in] in the operands' dtype, or as int8 with a scale for each group of columns; with a
    bias in float32 or none."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    scales: torch.Tensor | None = None  # [out, in / group], float32

    @property
    def group(self) -> int:
        """Columns that share a scale; 0: there are no scales."""
        return 0 if self.scales is None else self.num_in // int(self.scales.shape[1])

    @property
    def num_out(self) -> int:
        return int(self.weight.shape[0])

    @property
    def num_in(self) -> int:
        return int(self.weight.shape[1])


_GROUPS: Final = (128, 64)  # columns
_ROWS_AT_ONCE: Final = 1 << 14  # so that a head does not stand in memory as float32


def _packed(
    weight: torch.Tensor, group: int, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Whole numbers of −127 … 127, in units of the largest of each group ÷ 127."""
    num_out, num_in = weight.shape
    rows, scales = [], []
    for part in weight.split(_ROWS_AT_ONCE):
        groups = part.float().view(len(part), -1, group)
        scale = groups.abs().amax(dim=2) / 127
        units = groups / torch.where(scale > 0, scale, 1.0)[:, :, None]
        rows.append(units.round().clamp(-127, 127).to(torch.int8).view(len(part), num_in))
        scales.append(scale)
    packed, found = torch.cat(rows), torch.cat(scales)
    assert packed.shape == (num_out, num_in)
    return packed, bias, found.contiguous()


@dataclass(frozen=True)
class Loader:
    """`packs`: matrices become int8, where their columns can be grouped."""

    dtype: torch.dtype
    device: torch.device
    packs: bool = False

    def vector(self, source: WeightSource, names: Sequence[str]) -> torch.Tensor:
        """In float32, whatever the products are in."""
        parts = [np.asarray(source.float32(name), np.float32) for name in names]
        return torch.from_numpy(np.concatenate(parts)).to(self.device)

    def matrix(
        self, source: WeightSource, names: Sequence[str], biases: Sequence[str] = ()
    ) -> Matrix:
        assert len(biases) in (0, len(names)), (names, biases)
        weight = torch.cat([self._floats(source, name) for name in names])
        bias = self.vector(source, biases) if biases else None
        group = next((g for g in _GROUPS if weight.shape[1] % g == 0), 0) if self.packs else 0
        return Matrix(*_packed(weight, group, bias)) if group else Matrix(weight, bias)

    def _floats(self, source: WeightSource, name: str) -> torch.Tensor:
        """bfloat16 of a file goes over as it is; all else by way of float32."""
        tensor = source.tensor(name)
        if tensor.format == "BF16" and self.dtype == torch.bfloat16:
            raw = np.ascontiguousarray(tensor.data).view(np.int16).reshape(tensor.shape)
            return torch.from_numpy(raw.copy()).to(self.device).view(torch.bfloat16)
        floats = np.array(source.float32(name), np.float32)
        return torch.from_numpy(floats).to(self.device).to(self.dtype)
