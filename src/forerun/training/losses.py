"""How far a head's guesses are from what the target says, on the draft vocabulary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def divergence(logits_q: Tensor, probs_p: Tensor) -> Tensor:
    """Σ p log(p / q) of each row: both are [N, draft V], p sums to 1."""
    crossed: Tensor = _CrossEntropy.apply(logits_q, probs_p)
    return crossed - torch.special.entr(probs_p).sum(-1, dtype=torch.float32)


def total_variation(logits_q: Tensor, probs_p: Tensor) -> Tensor:
    """1 − Σ min(p, q) of each row, which is 1 − α; p may leave mass to tokens not drafted."""
    return 1 - torch.minimum(probs_p, logits_q.float().softmax(-1)).sum(-1)


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    """−Σ p log q. Going back needs logits and their sum alone: softmax(logits) − p."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, probs: Tensor) -> Tensor:
        lse = logits.float().logsumexp(-1)
        ctx.save_for_backward(logits, probs, lse)
        return lse - (probs * logits).sum(-1, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits, probs, lse = ctx.saved_tensors
        shares = (logits.float() - lse[:, None]).exp_().sub_(probs)
        return shares.mul_(grads[0][:, None]).to(logits.dtype), None
