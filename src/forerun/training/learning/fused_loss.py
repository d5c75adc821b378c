"""Losses of rows on a GPU, in Triton: neither logits nor the target's laws are copied."""

# Triton's decorator and its kernels have no types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

_WIDTH: Final = 2048  # logits that a program loads together


@triton.jit
def _forward(logits, probs, at, found, size: tl.constexpr, width: tl.constexpr):
    """Write `found` [N, 4]: −Σ p log q, log Σ exp, α = Σ min(p, q), and Σ q where q < p."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * size
    probs += tl.load(at + row) * size
    best = float("-inf")
    total = 0.0
    inner = 0.0
    for first in range(0, size, width):
        cols = first + tl.arange(0, width)
        inside = cols < size
        x = tl.load(logits + cols, mask=inside, other=float("-inf")).to(tl.float32)
        p = tl.load(probs + cols, mask=inside, other=0.0).to(tl.float32)
        top = tl.maximum(best, tl.max(x, axis=0))
        total = total * tl.exp(best - top) + tl.sum(tl.exp(x - top), axis=0)
        best = top
        inner += tl.sum(tl.where(inside, p * x, 0.0), axis=0)
    lse = best + tl.log(total)
    alpha = 0.0
    below = 0.0
    for first in range(0, size, width):
        cols = first + tl.arange(0, width)
        inside = cols < size
        x = tl.load(logits + cols, mask=inside, other=float("-inf")).to(tl.float32)
        p = tl.load(probs + cols, mask=inside, other=0.0).to(tl.float32)
        q = tl.exp(x - lse)
        alpha += tl.sum(tl.minimum(p, q), axis=0)
        below += tl.sum(tl.where(q < p, q, 0.0), axis=0)
    found += row * 4
    tl.store(found, lse - inner)
    tl.store(found + 1, lse)
    tl.store(found + 2, alpha)
    tl.store(found + 3, below)


@triton.jit
def _backward(logits, probs, at, found, grads, out, size: tl.constexpr, width: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    probs += tl.load(at + row) * size
    lse, below = tl.load(found + row * 4 + 1), tl.load(found + row * 4 + 3)
    crossed, accepted = tl.load(grads + row * 2), tl.load(grads + row * 2 + 1)
    for first in range(0, size, width):
        cols = first + tl.arange(0, width)
        inside = cols < size
        x = tl.load(logits + row * size + cols, mask=inside, other=float("-inf")).to(tl.float32)
        p = tl.load(probs + cols, mask=inside, other=0.0).to(tl.float32)
        q = tl.exp(x - lse)
        step = (q - p) * crossed + q * (tl.where(q < p, 1.0, 0.0) - below) * accepted
        tl.store(out + row * size + cols, step.to(out.dtype.element_ty), mask=inside)


class FusedLaws(torch.autograd.Function):  # type: ignore[misc]
    """`losses.compared` in two kernels."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, probs: Tensor, at: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits, probs, at = (each.contiguous() for each in (logits, probs, at))
        num, size = logits.shape
        found = torch.empty(num, 4, dtype=torch.float32, device=logits.device)
        _forward[num,](logits, probs, at, found, size=size, width=_WIDTH)
        ctx.save_for_backward(logits, probs, at, found)
        crossed, lse, alpha, _ = found.unbind(1)
        crossed, lse, alpha = crossed.clone(), lse.clone(), alpha.clone()
        ctx.mark_non_differentiable(lse)
        return crossed, alpha, lse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits, probs, at, found = ctx.saved_tensors
        num, size = logits.shape
        out = torch.empty_like(logits)
        both = torch.stack((grads[0].float(), grads[1].float()), dim=1)
        _backward[num,](logits, probs, at, found, both, out, size=size, width=_WIDTH)
        return out, None, None
