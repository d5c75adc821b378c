"""One round that the device runs by itself: guesses, and the pass that verifies them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forerun.kernels.cuda.drawing import Best
from forerun.kernels.cuda.heads.given import HandedOut
from forerun.kernels.cuda.host_copies import HostCopies
from forerun.kernels.cuda.passes.body import logits_of
from forerun.kernels.cuda.passes.recording import Recorder, Replay
from forerun.kernels.cuda.rounds.buffers import DRAFT, TARGET, Follow, RoundBuffers, Sent
from forerun.kernels.cuda.rounds.drafts import Draft
from forerun.kernels.cuda.rounds.guessing import guessing_for
from forerun.kernels.cuda.rounds.kernels import CHAIN

F32 = npt.NDArray[np.float32]


class Features:
    """Hidden states [layers, rows, E] of the last three verifications, at fixed addresses."""

    def __init__(self, like: Tensor) -> None:
        self._kept = [torch.zeros_like(like).contiguous() for _ in range(3)]

    @property
    def latest(self) -> Tensor:
        return self._kept[0]

    def push(self, new: Tensor) -> None:
        first, second, third = self._kept
        third.copy_(second)
        second.copy_(first)
        first.copy_(new)

    def of_age(self, age: int) -> Tensor:
        assert age < len(self._kept), "hidden states were written over"
        return self._kept[age]


@dataclass
class RoundGraph:
    """A round recorded in two parts, so that the host gets the guesses while they are verified.

    It has no reference to a cache, so that a cache that is not needed any more can be freed.
    """

    sent: Sent
    count: Tensor  # [1]: accepted guesses of the previous round
    found: Tensor  # what the host reads: picks of a head, or tokens
    logits: Tensor
    best: Best
    handed_out: HandedOut | None  # by the last verification
    guess: Replay
    verify: Replay
    held: Sequence[Any]  # memory that the two read and write
    features: Features | None = None  # of these, `handed_out` is the latest
    copies: HostCopies = field(default_factory=HostCopies)  # of `found`
    num_verified: int = 0
    is_fed: bool | None = None  # see `Begun._is_fed`; None: not checked yet

    def send(self, follow: Follow, handed_out: HandedOut | None) -> None:
        """Send what the device does not have; `handed_out` is of the verification under way.

        After a verification of its own, the device continues by itself as far as slots were sent.
        """
        mine, features = self.handed_out, self.features
        if features is not None and handed_out is mine and self.sent.has_slots(follow):
            return
        if features is not None and handed_out is not mine:
            assert handed_out is not None, "a head looks at hidden states"
            features.push(handed_out.rows(features.latest.shape[1]))
            self.num_verified += 1  # a verification that this graph did not run
        self.sent.send(follow)

    def run_verify(self) -> KeptOut | None:
        """Replay the verification; its hidden states stay on the device, for the next round."""
        self.verify.replay()
        self.num_verified += 1
        return None if self.handed_out is None else KeptOut(self, self.num_verified)

    @classmethod
    def record(
        cls, draft: Draft, buffers: RoundBuffers, recorder: Recorder, *, is_new: bool
    ) -> RoundGraph:
        """Record a round; if it `is_new`, first run it once over dump slots.

        That run compiles and loads its kernels.
        """
        drawing, work = buffers.drawing, _Work(draft, buffers)
        drawn = drawing.drawn.clone()
        buffers.sent.dump_all()
        if is_new:
            work.guess()
            work.verify()
        whole = buffers.batch(DRAFT, 1, 1)  # of no pass: one graph will do, as the device is busy
        guess, _ = recorder.record(work.guess, whole, 0, is_first=False)
        verify, (logits, best) = recorder.record(work.verify, whole, 0, is_first=False)
        drawing.drawn.copy_(drawn)
        found, handed_out, features = work.guessing.found, work.handed_out, work.features
        sent, count, held = buffers.sent, buffers.count, buffers.held
        return cls(sent, count, found, logits, best, handed_out, guess, verify, held, features)


class _Work:
    """What a round launches."""

    def __init__(self, draft: Draft, buffers: RoundBuffers) -> None:
        self._buffers, self._target = buffers, buffers.rooms[TARGET].one
        tapped, num_rows = self._target.batch.handed_out, 1 + draft.depth
        self.handed_out: HandedOut | None = None
        self.features: Features | None = None
        if tapped is not None:
            self.features = Features(tapped.rows(num_rows))
            shapes = tuple((num_rows, width) for _, width in tapped.shapes)
            self.handed_out = HandedOut(self.features.latest.view(-1), shapes)
        self.batch = buffers.batch(TARGET, num_rows, num_rows)
        self.guessing = guessing_for(draft, buffers, self.features and self.features.latest)

    def guess(self) -> tuple[Tensor, None]:
        self._buffers.accept()
        self.guessing()
        return self.guessing.found, None

    def verify(self) -> tuple[Tensor, Best]:
        batch, num_rows = self.batch, self.batch.inputs().num_tokens
        self._buffers.place(TARGET, batch, CHAIN)
        logits = logits_of(self._target.body, batch, self._target.store)
        best = self._buffers.drawing.best(logits)
        if self.features is not None:
            assert batch.handed_out is not None
            self.features.push(batch.handed_out.rows(num_rows))
        self._buffers.advance()
        return logits, best


@dataclass(frozen=True)
class KeptOut:
    """Hidden states of a verification, which stay on the device until the third one after it.

    A head that was not asked reads them when the host gets the next ones; by then the second
    verification after this one has begun.
    """

    graph: RoundGraph
    number: int  # of the verification

    @property
    def num_layers(self) -> int:
        assert self.graph.handed_out is not None
        return len(self.graph.handed_out.shapes)

    def views(self) -> Sequence[F32]:
        assert self.graph.features is not None
        rows = self.graph.features.of_age(self.graph.num_verified - self.number)
        return list(rows.cpu().numpy())

    def to_host(self) -> Sequence[F32]:
        return [each.copy() for each in self.views()]
