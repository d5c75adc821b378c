"""The guesses of a round, made on the device from tokens that it drew itself."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
import triton
from torch import Tensor

from forerun.kernels.cuda.heads.given import GivenInputs
from forerun.kernels.cuda.passes.body import logits_of
from forerun.kernels.cuda.rounds.buffers import DRAFT, RoundBuffers
from forerun.kernels.cuda.rounds.drafts import Draft, HeadDraft, ModelDraft
from forerun.kernels.cuda.rounds.kernels import (
    CATCH_UP,
    CHAIN,
    HEAD,
    give_features,
    keep_guess,
    keep_picks,
)
from forerun.kernels.cuda.values import Rows


class Guessing(Protocol):
    found: Tensor  # what the host reads: picks of a head, or tokens

    def __call__(self) -> None:
        """Launch it; afterwards `RoundBuffers.guesses` has the tokens."""
        ...


class HeadGuessing:
    """One pass of a head: a row for each token that may have been accepted, then the places.

    Rows of tokens that were not accepted write to the dump slot.
    """

    def __init__(self, draft: HeadDraft, buffers: RoundBuffers, features: Tensor) -> None:
        self._one, self._buffers, self._features = draft.one, buffers, features
        self.found = torch.zeros((draft.depth, 3), device=features.device)
        self._batch = buffers.batch(DRAFT, 2 * draft.depth, draft.depth)
        given, inputs = draft.one.batch.given, self._batch.inputs()
        assert given is not None
        num_known = len(draft.one.batch.plan) - draft.depth + 1
        self._batch.num_fill = 1 + draft.depth - num_known
        self._given = inputs.given = GivenInputs(given, inputs.num_tokens, features.device)
        # Inputs besides hidden states are the same in all rounds; a pass may overwrite them.
        self._others: list[tuple[Tensor, Tensor]] = []
        first = len(features)
        for array, rows in zip(given.arrays[first:], inputs.given.rows[first:], strict=True):
            known = np.repeat(array[:1], 1 + draft.depth, axis=0)
            whole = torch.from_numpy(np.concatenate((known, array[num_known:])))
            self._others.append((rows[: len(whole)], whole.to(features.device)))
        buffers.held += [self._given, self._others, self.found, features]

    def __call__(self) -> None:
        buffers, depth = self._buffers, self._buffers.depth
        num_layers, _, width = self._features.shape
        num_tokens = self._batch.inputs().num_tokens
        buffers.place(DRAFT, self._batch, HEAD)
        give_features[(num_tokens, num_layers)](
            buffers.sent.params, buffers.count, self._features, self._given.rows[0],
            self._given.noise, depth, num_tokens, width, triton.next_power_of_2(width),
        )  # fmt: skip
        for given, kept in self._others:
            given.copy_(kept)
        rows: Any = self._one.body(self._batch, self._one.store)
        assert isinstance(rows, Rows), rows
        self.found.copy_(rows.data)
        keep_picks[(1,)](self.found, buffers.guesses, depth, triton.next_power_of_2(depth))


class ModelGuessing:
    """A pass of a draft model for each guess.

    The first also runs over the tokens that the model has not seen: the last token, and the guess
    before it if all guesses were accepted.
    """

    def __init__(self, draft: ModelDraft, buffers: RoundBuffers) -> None:
        self._one, self._buffers = draft.one, buffers
        self.found = buffers.guesses[: draft.depth]
        self._batches = [buffers.batch(DRAFT, 1 if place else 2, 1) for place in range(draft.depth)]

    def __call__(self) -> None:
        buffers, one, drawing = self._buffers, self._one, self._buffers.drawing
        for place, batch in enumerate(self._batches):
            buffers.place(DRAFT, batch, CHAIN if place else CATCH_UP, place)
            drawing.best(logits_of(one.body, batch, one.store))
            keep_guess[(1,)](drawing.drawn, buffers.guesses, place)


def guessing_for(draft: Draft, buffers: RoundBuffers, features: Tensor | None) -> Guessing:
    if isinstance(draft, ModelDraft):
        return ModelGuessing(draft, buffers)
    assert features is not None, "a head looks at hidden states"
    return HeadGuessing(draft, buffers, features)
