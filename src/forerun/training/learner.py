"""A head that learns: its loss, its steps, and how good it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forerun.training.batches import Batch, text_batch
from forerun.training.graphs import Graphed
from forerun.training.learning.losses import compared, entropy
from forerun.training.learning.optimizer import Optimizer
from forerun.training.texts import Text
from forerun.training.torch_heads import TorchHead, ahead
from forerun.training.torch_target import TorchTarget

_SHARES: Final = (1.0, 1.0, 0.6, 0.4, 0.3, 0.2)  # of roots that are asked at each place
_ROWS_AT_ONCE: Final = 4096  # rows whose logits over the whole vocabulary are in memory together
_NUM_AHEAD: Final = 4  # steps that may wait for the device


class Learner:
    def __init__(
        self, target: TorchTarget, head: TorchHead, tokens: Tensor, num_places: int, loss: str
    ) -> None:
        """`tokens` [draft V] are the target's ids of the draft vocabulary."""
        self._target, self._head, self._tokens = target, head, tokens
        self._num_places, self._kind = num_places, loss
        self._draft_ids = draft_ids(tokens, target.config.vocab_size)
        self._device, self._weights = target.device, list(head.weights.values())
        self._optimizer = Optimizer(head.weights, self._device)
        self._batch: Batch | None = None
        self._update = Graphed(self._updated, self._device)
        self._ahead: deque[Any] = deque()

    def step(self, batch: Batch, learning_rate: float) -> Tensor:
        """Take one step, and return its loss without waiting for the device."""
        if self._batch is None:
            self._batch = batch.clone()
        self._batch.copy_(batch)
        self._optimizer.set_rate(learning_rate)
        loss = self._update()
        self._keep_up()
        return loss

    def _keep_up(self) -> None:
        """Let the host be only a few steps ahead, so that training ends in time on the device."""
        if self._device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self._ahead.append(event)
            if len(self._ahead) > _NUM_AHEAD:
                self._ahead.popleft().synchronize()

    def _updated(self) -> Tensor:
        assert self._batch is not None
        for weight in self._weights:
            weight.grad = None
        with self._head.cast():
            loss = self._loss(self._batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._weights, 1.0)
        self._optimizer.step()
        return loss.detach()

    def _loss(self, batch: Batch) -> Tensor:
        """Return the sum over places of the mean loss of their rows.

        A row is weighted by the chance that a round reaches it: that all guesses before it are
        accepted.
        """
        logits_p = self._target.logits(batch.h.flatten(0, 1), self._tokens)  # [B · T, draft V]
        probs_p = logits_p.softmax(-1).to(batch.h.dtype)
        own = entropy(probs_p)
        due = self._draft_ids[ahead(batch.tokens, 1).flatten()][batch.expected]  # [places, N]
        reached = torch.ones_like(batch.weights[0])
        total = torch.zeros((), device=batch.h.device)
        for place, logits_q in enumerate(islice(self._laws(batch, _SHARES), self._head.max_places)):
            num = len(logits_q)
            at, weights = batch.expected[place, :num], batch.weights[place, :num]
            crossed, alpha, lse = compared(logits_q, probs_p, at)
            each = (
                self._distance(crossed - own.index_select(0, at), alpha) * weights * reached[:num]
            )
            total = total + each.sum() / weights.sum().clamp(min=1)
            reached = reached[:num] * chances(logits_q.detach(), lse, due[place, :num])
        return total

    def _distance(self, divergence: Tensor, alpha: Tensor) -> Tensor:
        if self._kind == "tv":
            return 1 - alpha
        return divergence if self._kind == "kl" else divergence - alpha.clamp(min=1e-4).log()

    def _laws(self, batch: Batch, shares: Sequence[float] = (1.0,)) -> Iterator[Tensor]:
        """Yield the head's logits [N, draft V] at each place, for the place's share of the roots.

        Places beyond the last of `shares` have that one.
        """
        whole = len(batch.roots)
        at = [min(place, len(shares) - 1) for place in range(self._num_places)]
        counts = [max(1, int(shares[idx] * whole)) for idx in at]
        features = batch.features[:, :-1].chunk(len(self._head.config.layers), dim=-1)
        outputs = self._head.rows(features, batch.tokens, batch.roots, counts)
        before = self._draft_ids[batch.tokens.flatten()][batch.expected]  # [places, N]
        for place, rows in enumerate(outputs):
            yield self._head.logits(rows, place, before[place, : len(rows)])

    def sums(self, texts: Sequence[Text]) -> npt.NDArray[np.float64]:
        """Return, at each place, α at temperature 1, agreeing best tokens, and rows, summed up."""
        with torch.no_grad(), self._head.cast():
            return self._sums(texts)

    def _sums(self, texts: Sequence[Text]) -> npt.NDArray[np.float64]:
        batch = text_batch(self._target, self._head.config.layers, texts, self._num_places)
        known, best = [], []
        for part in batch.h.flatten(0, 1).split(_ROWS_AT_ONCE):
            probs_p = self._target.logits(part).softmax(-1)
            best.append(probs_p.argmax(-1))
            known.append(probs_p[:, self._tokens])
        probs_p, best_p = torch.cat(known), torch.cat(best)
        found = []
        rows = zip(self._laws(batch), batch.expected, batch.weights, strict=True)
        for logits_q, expected, weights in rows:
            probs_q = logits_q.float().softmax(-1)
            common = torch.minimum(probs_p[expected], probs_q).sum(-1)
            agree = self._tokens[logits_q.argmax(-1)] == best_p[expected]
            found.append([float((x * weights).sum()) for x in (common, agree, weights > 0)])
        return np.array(found).T


def chances(logits: Tensor, lse: Tensor, ids: Tensor) -> Tensor:
    """Return q of one id for each row; 0 for ids that cannot be guessed."""
    size = logits.shape[1]
    found = logits.gather(1, ids.clamp(max=size - 1)[:, None])[:, 0].float()
    return torch.where(ids < size, (found - lse).exp(), 0)


def draft_ids(tokens: Tensor, vocab_size: int) -> Tensor:
    """Return the draft id of each of the target's ids; draft V for those without one."""
    found = torch.full((vocab_size,), len(tokens), device=tokens.device)
    found[tokens] = torch.arange(len(tokens), device=tokens.device)
    return found
