"""Weights in the device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from forerun.kernels.base import WeightSource


@dataclass(frozen=True, eq=False)
class Matrix:
    """[out, in] in the operands' dtype, with a bias in float32 or none."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    @property
    def num_out(self) -> int:
        return int(self.weight.shape[0])

    @property
    def num_in(self) -> int:
        return int(self.weight.shape[1])


@dataclass(frozen=True)
class Loader:
    dtype: torch.dtype
    device: torch.device

    def vector(self, source: WeightSource, names: Sequence[str]) -> torch.Tensor:
        """In float32, whatever the products are in."""
        parts = [np.asarray(source.float32(name), np.float32) for name in names]
        return torch.from_numpy(np.concatenate(parts)).to(self.device)

    def matrix(
        self, source: WeightSource, names: Sequence[str], biases: Sequence[str] = ()
    ) -> Matrix:
        assert len(biases) in (0, len(names)), (names, biases)
        weight = torch.cat([self._floats(source, name) for name in names])
        return Matrix(weight, self.vector(source, biases) if biases else None)

    def _floats(self, source: WeightSource, name: str) -> torch.Tensor:
        """bfloat16 of a file goes over as it is; all else by way of float32."""
        tensor = source.tensor(name)
        if tensor.format == "BF16" and self.dtype == torch.bfloat16:
            raw = np.ascontiguousarray(tensor.data).view(np.int16).reshape(tensor.shape)
            raw = raw if raw.flags.writeable else raw.copy()  # torch takes no other
            return torch.from_numpy(raw).to(self.device).view(torch.bfloat16)
        floats = np.array(source.float32(name), np.float32)
        return torch.from_numpy(floats).to(self.device).to(self.dtype)
