"""How far a head's guesses are from what the target says, on the draft vocabulary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def divergence(logits_q: Tensor, probs_p: Tensor) -> Tensor:
    """Σ p log(p / q) of each row: both are [N, draft V], p sums to 1."""
    return cross_entropy(logits_q, probs_p)[0] - entropy(probs_p)


def cross_entropy(logits_q: Tensor, probs_p: Tensor) -> tuple[Tensor, Tensor]:
    """−Σ p log q of each row, and the logarithm of its sum, which has no gradient."""
    found: tuple[Tensor, Tensor] = _CrossEntropy.apply(logits_q, probs_p)
    return found


def entropy(probs: Tensor) -> Tensor:
    return torch.special.entr(probs).sum(-1, dtype=torch.float32)


def total_variation(logits_q: Tensor, probs_p: Tensor) -> Tensor:
    """1 − Σ min(p, q) of each row, which is 1 − α; p may leave mass to tokens not drafted."""
    return 1 - torch.minimum(probs_p, logits_q.float().softmax(-1)).sum(-1)


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    """−Σ p log q. Going back needs logits and their sum alone: softmax(logits) − p."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
        lse = logits.float().logsumexp(-1)
        ctx.save_for_backward(logits, probs, lse)
        ctx.mark_non_differentiable(lse)
        return lse - (probs * logits).sum(-1, dtype=torch.float32), lse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits, probs, lse = ctx.saved_tensors
        shares = (logits.float() - lse[:, None]).exp_().sub_(probs)
        return shares.mul_(grads[0][:, None]).to(logits.dtype), None
