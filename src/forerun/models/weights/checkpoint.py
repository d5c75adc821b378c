"""Weights by name, as they are stored in a file.

Whatever the file's format, names are Hugging Face's (`model.layers.0.self_attn.q_proj.weight`,
`model.norm.weight`, `lm_head.weight` …), and rows of q and k are in half-split rope order: readers
of other formats convert both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from forerun.models.config import ModelConfig
from forerun.models.weights.dequantize import dequantize


@dataclass(frozen=True)
class Tensor:
    """One weight. `data` is uint8 [rows, bytes per row], mapped from disk where possible."""

    name: str
    shape: tuple[int, ...]  # logical, row-major: [out, in] for a matrix, [n] for a vector
    format: str  # "F32", "F16", "BF16", "Q8_0", "Q4_1", "Q4_K", …
    data: npt.NDArray[np.uint8]

    def floats(self, first: int, last: int) -> npt.NDArray[np.float32]:
        """Rows `first` … `last` - 1 of a matrix, expanded."""
        return dequantize(self.data[first:last], self.format)


class Checkpoint(Protocol):
    """The opened files of a model."""

    @property
    def config(self) -> ModelConfig: ...

    def names(self) -> Iterator[str]: ...

    def has(self, name: str) -> bool: ...

    def tensor(self, name: str) -> Tensor: ...

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        """Return the tensor as floats, in its logical shape."""

    def metadata(self) -> dict[str, Any]:
        """Return what the files have besides weights: tokenizer, chat template, special ids."""
