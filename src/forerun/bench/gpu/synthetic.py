"""Models of known shapes with random weights that generate known text: they count."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.models.config import ModelConfig
from forerun.models.known_shapes import read_shape
from forerun.models.llama import EMBEDDING, HEAD
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.layout import required_shapes

SHAPES: Final = {
    name: replace(read_shape(shape), tie_embeddings=False)  # reads as many bytes
    for name, shape in (
        ("1b", "llama-3.2-1b"),
        ("3b", "llama-3.2-3b"),
        ("135m", "smollm2-135m"),
    )
}
_TABLES: Final = (EMBEDDING, HEAD)
_ADDED: Final = ("o_proj.weight", "down_proj.weight")
_POOL_LEN: Final = 1 << 22
_WHISPER: Final = 2.0**-10  # small beside a token's own embedding


@dataclass(frozen=True)
class SyntheticCheckpoint:
    """Weights in bfloat16, each tensor cut out of one pool of normal numbers at its own place.

    Drawing billions of numbers would take longer than the measurement. The head's row for a token
    is the embedding of the token before it, so that the model counts. A share `spoiled` of the
    tokens is followed by an arbitrary one instead: a draft model that is wrong that often.
    """

    config: ModelConfig
    spoiled: float = 0.0
    added: float = _WHISPER  # scale of what layers add to the residual stream
    seed: int = 0

    @cached_property
    def _pools(self) -> dict[bool, npt.NDArray[np.uint16]]:
        """The pools by whether a tensor's output is added to the residual stream."""
        rng = np.random.default_rng(self.seed)
        floats = rng.standard_normal(_POOL_LEN, np.float32) / np.sqrt(self.config.hidden_size)
        return {False: _bfloat16(floats), True: _bfloat16(self.added * floats)}

    @cached_property
    def _places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where in the pool each token's rows of the embedding and of the head begin."""
        num, rng = self.config.vocab_size, np.random.default_rng(self.seed)
        embedded, other = rng.choice(_POOL_LEN, (2, num), replace=False)
        is_spoiled = rng.random(num) < self.spoiled
        return embedded, np.roll(np.where(is_spoiled, other, embedded), 1)

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return dict(required_shapes(self.config))

    @property
    def num_read(self) -> int:
        """The weights that a plain pass reads: each matrix once, but an untied embedding hardly."""
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
        if name in _TABLES:
            windows = np.lib.stride_tricks.sliding_window_view(self._pools[False], shape[1])
            rows = windows[self._places[_TABLES.index(name)]]
            return Tensor(name, shape, "BF16", rows.view(np.uint8))
        first, size = hash_of(name) % _POOL_LEN, int(np.prod(shape))
        data, pool = np.empty(size, np.uint16), self._pools[name.endswith(_ADDED)]
        for at in range(0, size, _POOL_LEN):
            part = data[at : at + _POOL_LEN]
            part[:] = pool[first : first + len(part)]
        return Tensor(name, shape, "BF16", data.reshape(shape).view(np.uint8))

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self.tensor(name)
        return tensor.floats(0, len(tensor.data)).reshape(tensor.shape)

    def metadata(self) -> dict[str, Any]:
        return {}


def _bfloat16(floats: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return the numbers twice in a row, so that as many follow any place in the first half."""
    high = (floats.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.concatenate((high, high))


def hash_of(name: str) -> int:
    """Return a hash that is the same in every process."""
    return zlib.crc32(name.encode())
