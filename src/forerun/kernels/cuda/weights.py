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
    """[out, in] in the operands' dtype, or as bytes with a scale for each group of columns (see
    `packed`); with a bias in float32 or none."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    scales: torch.Tensor | None = None  # [in / group, out], float32

    @property
    def group(self) -> int:
        """Columns that share a scale; 0: there are no scales."""
        return 0 if self.scales is None else self.num_in // len(self.scales)

    @property
    def num_out(self) -> int:
        return int(self.weight.shape[0])

    @property
    def num_in(self) -> int:
        return int(self.weight.shape[1])


_GROUPS: Final = (128, 64, 32)  # columns that share a scale: the first that divides a row
_ROWS_AT_ONCE: Final = 1 << 14  # so that a large head is never in memory as float32 as a whole


def packed(weight: torch.Tensor, bias: torch.Tensor | None) -> Matrix:
    """Quantize to whole numbers of −127 … 127, stored as bytes with 128 added.

    Their unit is the largest magnitude of each group ÷ 127. A matrix whose rows no group size
    divides stays as it is.
    """
    num_in = weight.shape[1]
    group = next((size for size in _GROUPS if num_in % size == 0), 0)
    if not group:
        return Matrix(weight, bias)
    rows, scales = [], []
    for part in weight.split(_ROWS_AT_ONCE):
        groups = part.float().view(len(part), -1, group)
        scale = groups.abs().amax(dim=2) / 127
        units = groups / torch.where(scale > 0, scale, 1.0)[:, :, None]
        rows.append((units.round() + 128).to(torch.uint8).view(len(part), num_in))
        scales.append(scale)
    return Matrix(torch.cat(rows), bias, torch.cat(scales).T.contiguous())


@dataclass(frozen=True)
class Loader:
    """Loads weights onto the device; if it `packs`, matrices become int8."""

    dtype: torch.dtype
    device: torch.device
    packs: bool = False

    @property
    def weight_size(self) -> float:
        return 1 + 4 / _GROUPS[0] if self.packs else self.dtype.itemsize

    def vector(self, source: WeightSource, names: Sequence[str]) -> torch.Tensor:
        """Load vectors, concatenated, in float32 whatever dtype the products have."""
        parts = [np.asarray(source.float32(name), np.float32) for name in names]
        return torch.from_numpy(np.concatenate(parts)).to(self.device)

    def matrix(
        self, source: WeightSource, names: Sequence[str], biases: Sequence[str] = ()
    ) -> Matrix:
        assert len(biases) in (0, len(names)), (names, biases)
        weight = torch.cat([self._floats(source, name) for name in names])
        bias = self.vector(source, biases) if biases else None
        return packed(weight, bias) if self.packs else Matrix(weight, bias)

    def _floats(self, source: WeightSource, name: str) -> torch.Tensor:
        """Load one matrix: bfloat16 is sent as the file has it, all else is expanded to float32."""
        tensor = source.tensor(name)
        if tensor.format == "BF16" and self.dtype != torch.float32:
            raw = np.ascontiguousarray(tensor.data).view(np.int16).reshape(tensor.shape)
            raw = raw if raw.flags.writeable else raw.copy()  # torch warns otherwise
            return torch.from_numpy(raw).to(self.device).view(torch.bfloat16).to(self.dtype)
        floats = np.array(source.float32(name), np.float32)
        return torch.from_numpy(floats).to(self.device).to(self.dtype)
