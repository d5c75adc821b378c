"""What operations return to the model: rows, and products that wait for the next operation."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from forerun.kernels.cuda.weights import Matrix


@dataclass(frozen=True)
class Rows:
    """Rows [T, width], in float32 or in the operands' dtype, of which `chosen` [R] are selected."""

    data: torch.Tensor
    chosen: torch.Tensor | None = None

    @property
    def num_rows(self) -> int:
        return len(self.data) if self.chosen is None else len(self.chosen)


@dataclass(frozen=True)
class Normed:
    """norm(x) as a product reads it: x · weight, and Σx² in groups of columns.

    x may be divided by a power of two, and `eps` then by its square.
    """

    scaled: torch.Tensor  # [T, E], in the operands' dtype
    squares: torch.Tensor  # [T, groups]
    eps: float

    @property
    def num_rows(self) -> int:
        return len(self.scaled)


@dataclass(frozen=True)
class Product:
    """x · matrixᵀ + bias, not computed yet; `chosen` as in `Rows`."""

    x: Rows | Normed
    matrix: Matrix
    chosen: torch.Tensor | None = None

    @property
    def num_rows(self) -> int:
        return self.x.num_rows if self.chosen is None else len(self.chosen)
