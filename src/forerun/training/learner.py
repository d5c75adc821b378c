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
from forerun.training.losses import divergence, total_variation
from forerun.training.texts import Text
from forerun.training.torch_heads import TorchHead
from forerun.training.torch_target import TorchTarget

_DISCOUNT: Final = 0.8  # of the loss, from one place to the next
_ROWS_AT_ONCE: Final = 4096  # whose logits over the whole vocabulary are there at once
_NUM_AHEAD: Final = 4  # steps that may wait for the device


class Learner:
    def __init__(
        self, target: TorchTarget, head: TorchHead, tokens: Tensor, num_places: int, loss: str
    ) -> None:
        """`tokens` [draft V] are the target's ids of what can be guessed."""
        self._target, self._head, self._tokens = target, head, tokens
        self._num_places, self._is_variation = num_places, loss == "tv"
        self._draft_ids = draft_ids(tokens, target.config.vocab_size)
        self._device, self._weights = target.device, list(head.weights.values())
        is_cuda = self._device.type == "cuda"
        self._rate: Any = torch.zeros((), device=self._device) if is_cuda else 0.0
        self._optimizer = torch.optim.AdamW(
            self._weights,
            lr=self._rate,
            betas=(0.9, 0.95),
            weight_decay=0.01,
            fused=is_cuda,
            capturable=is_cuda,
        )
        self._batch: Batch | None = None
        self._update = Graphed(self._updated, self._device)
        self._ahead: deque[Any] = deque()

    def step(self, batch: Batch, learning_rate: float) -> Tensor:
        """The loss, which nobody waits for here."""
        if self._batch is None:
            self._batch = batch.clone()
        self._batch.copy_(batch)
        if self._device.type == "cuda":
            self._rate.fill_(learning_rate)
        else:
            self._optimizer.param_groups[0]["lr"] = learning_rate
        loss = self._update()
        self._keep_up()
        return loss

    def _keep_up(self) -> None:
        """The host is a few steps ahead of a device, and no more: time is up for both."""
        if self._device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self._ahead.append(event)
            if len(self._ahead) > _NUM_AHEAD:
                self._ahead.popleft().synchronize()

    def _updated(self) -> Tensor:
        assert self._batch is not None
        self._optimizer.zero_grad(set_to_none=True)
        with self._head.cast():
            loss = self._loss(self._batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._weights, 1.0)
        self._optimizer.step()
        return loss.detach()

    def _loss(self, batch: Batch) -> Tensor:
        """The sum over places, each the mean over its rows."""
        h = batch.h.flatten(0, 1)
        logits_p = self._target.logits(h, self._tokens)  # [B · T, draft V]
        if self._is_variation:
            known = torch.logsumexp(self._target.logits(h), dim=-1, keepdim=True)
            probs_p = (logits_p - known).exp()
        else:
            probs_p = logits_p.softmax(-1).to(h.dtype)
        each_of = total_variation if self._is_variation else divergence
        total = torch.zeros((), device=h.device)
        for place, logits_q in enumerate(islice(self._laws(batch), self._head.max_places)):
            each = each_of(logits_q, probs_p.index_select(0, batch.expected[place]))
            weights = batch.weights[place]
            total = total + _DISCOUNT**place * (each * weights).sum() / weights.sum().clamp(min=1)
        return total

    def _laws(self, batch: Batch) -> Iterator[Tensor]:
        """The head's logits at each place [N, draft V], one after another."""
        features = batch.features[:, :-1].chunk(len(self._head.config.layers), dim=-1)
        outputs = self._head.outputs(features, batch.tokens, self._num_places)
        before = self._draft_ids[batch.tokens.flatten()][batch.expected]  # [places, N]
        for place, output in enumerate(outputs):
            rows = output.flatten(0, 1).index_select(0, batch.roots)
            yield self._head.logits(rows, place, before[place])

    def sums(self, texts: Sequence[Text]) -> npt.NDArray[np.float64]:
        """Of α at temperature 1, of best tokens that agree, and of rows, at each place."""
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


def draft_ids(tokens: Tensor, vocab_size: int) -> Tensor:
    """By the target's ids; draft V for those that cannot be guessed."""
    found = torch.full((vocab_size,), len(tokens), device=tokens.device)
    found[tokens] = torch.arange(len(tokens), device=tokens.device)
    return found
