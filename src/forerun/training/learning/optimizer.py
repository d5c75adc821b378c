"""Muon (Jordan et al. 2024) for matrices inside a head, AdamW for the rest.

A matrix moves along its momentum after all singular values were brought near 1. So a step changes
what a layer does in all directions alike, and a short training gets further.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

_MOMENTUM: Final = 0.95
_DECAY: Final = 0.01
_STEPS: Final = 5
_POLYNOMIAL: Final = (3.4445, -4.7750, 2.0315)
_SCALE: Final = 0.2  # of the entries of a step: about that of AdamW's
# Matrices for AdamW: their rows are tokens or places, each a vector of its own.
_VOCABULARY: Final = (
    *("lm_head.weight", "embedding.weight", "markov.out.weight", "places.weight"),
    *("embed_tokens.weight", "look_ahead.weight", ".1.weight"),
)


class Optimizer:
    """Takes steps on `weights`, whose names decide how; on a GPU a step can be recorded."""

    def __init__(self, weights: Mapping[str, Tensor], device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        inner = {
            name: weight
            for name, weight in weights.items()
            if weight.ndim == 2 and not name.endswith(_VOCABULARY)
        }
        self._matrices = list(inner.values())
        self._momenta = [torch.zeros_like(weight) for weight in self._matrices]
        self.rate: Any = torch.zeros((), device=device) if self._is_cuda else 0.0
        self._adam = torch.optim.AdamW(
            [weight for name, weight in weights.items() if name not in inner],
            lr=self.rate,
            betas=(0.9, 0.95),
            weight_decay=_DECAY,
            fused=self._is_cuda,
            capturable=self._is_cuda,
        )

    def set_rate(self, rate: float) -> None:
        if self._is_cuda:
            self.rate.fill_(rate)
        else:
            self.rate = rate
            self._adam.param_groups[0]["lr"] = rate

    def step(self) -> None:
        self._adam.step()
        with torch.no_grad():
            for weight, momentum in zip(self._matrices, self._momenta, strict=True):
                if weight.grad is not None:
                    self._move(weight, weight.grad, momentum)

    def _move(self, weight: Tensor, grad: Tensor, momentum: Tensor) -> None:
        momentum.lerp_(grad, 1 - _MOMENTUM)
        update = _orthogonal(grad.lerp(momentum, _MOMENTUM))
        update = update * (_SCALE * max(weight.shape) ** 0.5)
        weight.sub_(self.rate * (update + _DECAY * weight))


def _orthogonal(x: Tensor) -> Tensor:
    """Approximate the matrix with singular values of 1 nearest to x (Newton-Schulz iteration)."""
    a, b, c = _POLYNOMIAL
    wide = x if x.shape[0] <= x.shape[1] else x.T
    y = wide.to(torch.bfloat16) / (wide.norm() + 1e-7)
    for _ in range(_STEPS):
        gram = y @ y.T
        y = a * y + (b * gram + c * gram @ gram) @ y
    found = y if x.shape[0] <= x.shape[1] else y.T
    return found.float()
