"""How far a head's distribution is from the target's, over the draft vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor


def compared(logits_q: Tensor, probs_p: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compare row n of logits [N, draft V] with row `at`[n] of the target's laws [T, draft V].

    Returns −Σ p log q; α = Σ min(p, q), the chance that a guess is accepted; and the log-sum-exp of
    the logits, which has no gradient.
    """
    if logits_q.device.type == "cuda":
        from forerun.training.learning.fused_loss import FusedLaws

        fused: tuple[Tensor, Tensor, Tensor] = FusedLaws.apply(logits_q, probs_p, at)
        return fused
    law_p, logits = probs_p.index_select(0, at), logits_q.float()
    lse = logits.logsumexp(-1)
    crossed = lse - (law_p * logits).sum(-1)
    alpha = torch.minimum(law_p, (logits - lse[:, None]).exp()).sum(-1)
    return crossed, alpha, lse.detach()


def entropy(probs: Tensor) -> Tensor:
    return torch.special.entr(probs).sum(-1, dtype=torch.float32)
