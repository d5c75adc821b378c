"""Models of known shapes with random weights: speed asks for no more."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.models.config import ModelConfig
from forerun.models.known_shapes import read_shape
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.layout import required_shapes

SHAPES: Final = {
    "1b": read_shape("llama-3.2-1b"),
    "3b": read_shape("llama-3.2-3b"),
    "135m": read_shape("smollm2-135m"),
}
_POOL_LEN: Final = 1 << 22


@dataclass(frozen=True)
class SyntheticCheckpoint:
    """Weights in bfloat16, cut out of one pool of normal numbers at a place of each tensor's own.

    Drawing billions of numbers would take longer than the measurement.
    """

    config: ModelConfig
    seed: int = 0

    @cached_property
    def _pool(self) -> npt.NDArray[np.uint16]:
        rng = np.random.default_rng(self.seed)
        floats = rng.standard_normal(_POOL_LEN, np.float32) / np.sqrt(self.config.hidden_size)
        high: npt.NDArray[np.uint16] = (floats.astype(np.float32).view(np.uint32) >> 16).astype(
            np.uint16
        )
        return np.concatenate((high, high))  # so that all of it follows any place in its first half

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return dict(required_shapes(self.config))

    @property
    def num_read(self) -> int:
        """Weights that a plain pass reads: every matrix once, and of the embedding one row."""
        shapes = self._shapes.items()
        skipped = () if self.config.tie_embeddings else ("model.embed_tokens.weight",)
        return sum(int(np.prod(s)) for name, s in shapes if len(s) > 1 and name not in skipped)

    def names(self) -> Iterator[str]:
        return iter(self._shapes)

    def has(self, name: str) -> bool:
        return name in self._shapes

    def tensor(self, name: str) -> Tensor:
        shape = self._shapes[name]
        if len(shape) == 1:
            return Tensor(name, shape, "F32", np.ones((1, shape[0]), np.float32).view(np.uint8))
        first, size = hash_of(name) % _POOL_LEN, int(np.prod(shape))
        data = np.empty(size, np.uint16)
        for at in range(0, size, _POOL_LEN):
            part = data[at : at + _POOL_LEN]
            part[:] = self._pool[first : first + len(part)]
        return Tensor(name, shape, "BF16", data.reshape(shape).view(np.uint8))

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self.tensor(name)
        return tensor.floats(0, len(tensor.data)).reshape(tensor.shape)

    def metadata(self) -> dict[str, Any]:
        return {}


def hash_of(name: str) -> int:
    """The same in every process."""
    return zlib.crc32(name.encode())
