"""Weights from arrays in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forerun.models.weights.checkpoint import Tensor

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ArraySource:
    arrays: dict[str, F32]

    def tensor(self, name: str) -> Tensor:
        array = self.arrays[name]
        data = np.ascontiguousarray(array).reshape(1 if array.ndim == 1 else len(array), -1)
        return Tensor(name, array.shape, "F32", data.view(np.uint8))

    def float32(self, name: str) -> F32:
        return self.arrays[name]


def normal(seed: int, *shape: int) -> F32:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
