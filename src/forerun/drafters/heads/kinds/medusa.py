"""Medusa (Cai et al. 2024): one small head per place to guess, all on the last hidden state.

    h = norm(the target's residual stream after its last layer, at the last token but one)
    logits of guess i = matrix i · (h + silu(linear i · h))

Guess 0 is the token after the last one. Heads do not see each other's guesses, so the law after a
path depends on its length alone.
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
from forerun.models.llama import LlamaModel
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


def _their_shapes(folder: HeadFolder) -> dict[str, tuple[int, ...]]:
    """Return the shapes of another engine's weights.

    There is no norm: it is the target's. If head 0 has no bias, no head has one; if it has no
    matrix, all use the target's. A draft vocabulary of all ids needs no map."""
    config = folder.config
    lent = [part for part in (".0.linear.bias", ".1.weight") if not folder.has(f"0{part}")]
    lent += [D2T] if config.draft_vocab_size == config.target_vocab_size else []
    shapes = medusa_shapes(config).items()
    return {name: shape for name, shape in shapes if not name.endswith(("norm.weight", *lent))}


@dataclass(frozen=True)
class _Head:
    gate_up: Weight  # [2E, E]: the head's linear layer, and rows that yield 1
    out: Weight  # [draft V, E]


class MedusaHeads(LastHiddenHeads):
    def __init__(
        self, folder: HeadFolder, kernels: TappedKernels, target: LlamaModel | None = None
    ) -> None:
        """Load the heads; `target` has the norm and matrix that those of other engines may lack."""
        shapes = medusa_shapes(folder.config) if folder.is_ours else _their_shapes(folder)
        super().__init__(folder, kernels, shapes, target)
        source, places = _WithOnes(folder), range(self.config.num_guesses)
        self._heads = [_head(source, kernels, idx, target) for idx in places]

    def places(self, h: Array) -> Iterator[tuple[Array, Weight]]:
        k = self.kernels
        for head in self._heads:
            yield self.added(h, k.silu_mul(k.linear(h, head.gate_up))), head.out


@dataclass(frozen=True)
class _WithOnes:
    """The folder with a matrix of zeros and a bias of ones added, so that `silu_mul` is
    silu(x) · 1. Missing biases are 0."""

    folder: HeadFolder

    def tensor(self, name: str) -> Tensor:
        if self.folder.has(name):
            return self.folder.tensor(name)
        array = self.float32(name)
        return Tensor(name, array.shape, "F32", array.reshape(len(array), -1).view(np.uint8))

    def float32(self, name: str) -> F32:
        if self.folder.has(name):
            return self.folder.float32(name)
        size = self.folder.config.target_hidden_size
        shape = (size, size) if name == "zeros" else (size,)
        return np.full(shape, name == "ones", np.float32)


def _head(source: _WithOnes, k: TappedKernels, idx: int, target: LlamaModel | None) -> _Head:
    linear, out = f"{idx}.0.linear", f"{idx}.1.weight"
    gate_up = k.load_matrix(source, [f"{linear}.weight", "zeros"], [f"{linear}.bias", "ones"])
    if source.folder.has(out):
        return _Head(gate_up, k.load_matrix(source, [out]))
    assert target is not None, source.folder.path
    return _Head(gate_up, target.head)
