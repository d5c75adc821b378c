"""One round as the device runs it by itself: guesses, and the pass that verifies them."""

from __future__ import annotations

import torch
from torch import Tensor

from forerun.kernels.cuda.drawing import Best
from forerun.kernels.cuda.heads.given import HandedOut
from forerun.kernels.cuda.passes.body import logits_of
from forerun.kernels.cuda.passes.recording import Recorder, Replay
from forerun.kernels.cuda.rounds.buffers import DRAFT, TARGET, Follow, RoundBuffers
from forerun.kernels.cuda.rounds.drafts import Draft
from forerun.kernels.cuda.rounds.guessing import guessing_for
from forerun.kernels.cuda.rounds.kernels import CHAIN


class RoundGraph:
    """Recorded in two parts, so that the host gets the guesses while they are verified."""

    def __init__(self, draft: Draft, buffers: RoundBuffers) -> None:
        self.depth, self._buffers = draft.depth, buffers
        self.count = buffers.count
        self._target = buffers.rooms[TARGET].one
        tapped, num_rows = self._target.handed_out, 1 + draft.depth
        self.handed_out: HandedOut | None = None
        self.features: Tensor | None = None  # [layers, 1 + depth, E]: of the last verification
        if tapped is not None:
            self.features = torch.zeros_like(tapped.rows(num_rows)).contiguous()
            shapes = tuple((num_rows, width) for _, width in tapped.shapes)
            self.handed_out = HandedOut(self.features.view(-1), shapes)
        self._batch = buffers.batch(TARGET, num_rows, num_rows)
        self._guessing = guessing_for(draft, buffers, self.features)
        self.logits: Tensor
        self.best: Best
        self._replays: tuple[Replay, Replay]

    @property
    def found(self) -> Tensor:
        """What the host asks for: picks of a head, or tokens."""
        return self._guessing.found

    def record(self, recorder: Recorder) -> None:
        """Run once over dump slots, which compiles what is new, then keep it."""
        drawing, rooms = self._buffers.drawing, self._buffers.rooms
        drawn = drawing.drawn.clone()
        self._buffers.dump_all()
        self._guess()
        self._verify()
        num_layers = [room.one.store.num_layers for room in rooms]
        draft_batch = self._buffers.batch(DRAFT, 1, 1)  # never cut into several graphs
        guessing, _ = recorder.record(self._guess, draft_batch, num_layers[DRAFT], is_first=False)
        verifying, (self.logits, self.best) = recorder.record(
            self._verify, self._batch, num_layers[TARGET], is_first=False
        )
        self._replays = guessing, verifying
        drawing.drawn.copy_(drawn)

    def send(self, follow: Follow, handed_out: HandedOut | None) -> None:
        """`handed_out`: by the verification under way."""
        if self.features is not None and handed_out is not self.handed_out:
            assert handed_out is not None, "a head looks at hidden states"
            self.features.copy_(handed_out.rows(1 + self.depth))
        self._buffers.send(follow)

    def guess(self) -> None:
        self._replays[0].replay()

    def verify(self) -> None:
        self._replays[1].replay()

    def _guess(self) -> tuple[Tensor, None]:
        self._buffers.accept()
        self._guessing()
        return self.found, None

    def _verify(self) -> tuple[Tensor, Best]:
        batch = self._batch
        self._buffers.place(TARGET, batch, CHAIN)
        logits = logits_of(self._target.body, batch, self._target.store)
        best = self._buffers.drawing.best(logits)
        if self.features is not None:
            assert batch.handed_out is not None
            self.features.copy_(batch.handed_out.rows(1 + self.depth))
        return logits, best
