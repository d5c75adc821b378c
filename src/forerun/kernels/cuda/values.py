"""What the kernel set hands to the model: rows, and products that wait for what follows them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from forerun.kernels.cuda.weights import Matrix


@dataclass(frozen=True)
class Rows:
    """[T, width], in float32 or in the operands' dtype; `chosen` [R] says which are meant."""

    data: torch.Tensor
    chosen: torch.Tensor | None = None

    @property
    def num_rows(self) -> int:
        return len(self.data) if self.chosen is None else len(self.chosen)


@dataclass(frozen=True)
class Normed:
    """norm(x) on its way into a product: x · weight, and Σx² in groups of columns.

    A power of two may have been taken out of x, and its square out of `eps`.
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
