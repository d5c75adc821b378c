"""Medusa (Cai et al. 2024): one small head per place to guess, all on the last hidden state.

    h = norm(the target's residual stream after its last layer, at the last token but one)
    logits of guess i = matrix i · (h + silu(linear i · h))

Guess 0 is the token after the last one. Heads do not see each other's guesses, so what stands after
a path depends on its length alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.folder import D2T, HeadFolder
from forerun.drafters.heads.last_hidden import LastHiddenHeads
from forerun.kernels import TappedKernels
from forerun.kernels.base import Array, Weight
from forerun.models.weights.checkpoint import Tensor

F32 = npt.NDArray[np.float32]


def medusa_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    size = config.target_hidden_size
    shapes: dict[str, tuple[int, ...]] = {"norm.weight": (size,)}
    for idx in range(config.num_guesses):
        shapes[f"{idx}.0.linear.weight"] = (size, size)
        shapes[f"{idx}.0.linear.bias"] = (size,)
        shapes[f"{idx}.1.weight"] = (config.draft_vocab_size, size)
    return {**shapes, D2T: (config.draft_vocab_size,)}


@dataclass(frozen=True)
class _Head:
    gate_up: Weight  # [2E, E]: its linear, and rows that give 1
    out: Weight  # [draft V, E]


class MedusaHeads(LastHiddenHeads):
    def __init__(self, folder: HeadFolder, kernels: TappedKernels) -> None:
        super().__init__(folder, kernels, medusa_shapes(folder.config))
        source = _WithOnes(folder)
        self._heads = [_head(source, kernels, idx) for idx in range(self.config.num_guesses)]

    def places(self, h: Array) -> Iterator[tuple[Array, Weight]]:
        k = self.kernels
        for head in self._heads:
            yield self.added(h, k.silu_mul(k.linear(h, head.gate_up))), head.out


@dataclass(frozen=True)
class _WithOnes:
    """A folder that also has a matrix of zeros and a bias of ones: silu(x) · 1 is silu(x)."""

    folder: HeadFolder

    def tensor(self, name: str) -> Tensor:
        if name not in ("zeros", "ones"):
            return self.folder.tensor(name)
        array = self.float32(name)
        return Tensor(name, array.shape, "F32", array.reshape(len(array), -1).view(np.uint8))

    def float32(self, name: str) -> F32:
        size = self.folder.config.target_hidden_size
        if name == "zeros":
            return np.zeros((size, size), np.float32)
        return np.ones(size, np.float32) if name == "ones" else self.folder.float32(name)


def _head(source: _WithOnes, kernels: TappedKernels, idx: int) -> _Head:
    linear = f"{idx}.0.linear"
    return _Head(
        kernels.load_matrix(source, [f"{linear}.weight", "zeros"], [f"{linear}.bias", "ones"]),
        kernels.load_matrix(source, [f"{idx}.1.weight"]),
    )
