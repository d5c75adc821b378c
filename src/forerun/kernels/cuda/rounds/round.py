"""One round as the device runs it by itself: guesses, and the pass that verifies them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import triton
from torch import Tensor

from forerun.kernels.base import Body
from forerun.kernels.cuda.batch import CudaBatch
from forerun.kernels.cuda.drawing import Best, Drawing
from forerun.kernels.cuda.heads.given import NUM_TURNS, GivenInputs, HandedOut
from forerun.kernels.cuda.passes.body import logits_of
from forerun.kernels.cuda.passes.inputs import Inputs
from forerun.kernels.cuda.passes.recording import Recorder, Replay
from forerun.kernels.cuda.rounds.kernels import (
    CHAIN,
    DRAFT_ROW,
    GUESSES_AT,
    HEAD,
    MOST_GUESSES,
    NUM_PARAMS,
    TARGET_ROW,
    accept_guesses,
    give_features,
    keep_picks,
    place_chain,
)
from forerun.kernels.cuda.store import KVStore
from forerun.kernels.cuda.values import Rows
from forerun.types import IntArray

_NUM_TAKEN: Final = MOST_GUESSES + 1


@dataclass(frozen=True)
class Part:
    """One of the two models of a round: what it runs, over which cache, with room for how much."""

    body: Body
    batch: CudaBatch  # of a pass that was asked for
    store: KVStore
    num_splits: int
    num_keys: int

    @property
    def key(self) -> tuple[Any, ...]:
        return self.body, self.store, self.num_splits, self.num_keys


@dataclass(frozen=True)
class Follow:
    """What the host says of a round before it knows how many guesses were accepted."""

    guesses: Sequence[int]  # that are being verified
    rows: tuple[int, int]  # of the draft's and the target's cache, if none is accepted
    slots: tuple[IntArray, IntArray]  # of all rows that may be needed
    noise: tuple[int, int, int]  # words of `GivenInputs`


class _Sent:
    """Words and slots of a cache, which travel at once; the host's side has turns."""

    def __init__(self, num_words: int, device: torch.device) -> None:
        self.device = torch.zeros(num_words, dtype=torch.int32, device=device)
        is_pinned = device.type == "cuda"
        self._hosts = [
            torch.zeros(num_words, dtype=torch.int32, pin_memory=is_pinned)
            for _ in range(NUM_TURNS)
        ]
        self._turn = 0

    def send(self, *parts: tuple[int, np.ndarray[Any, Any]]) -> None:
        """Each part at its place; the last one ends what is sent."""
        self._turn = (self._turn + 1) % NUM_TURNS
        host = self._hosts[self._turn]
        words = host.numpy()
        end = 0
        for at, part in parts:
            end = at + len(part)
            words[at:end] = part
        self.device[:end].copy_(host[:end], non_blocking=True)


class RoundGraph:
    """The recorded round of a head that guesses `depth` tokens, and of the target behind it."""

    def __init__(
        self, draft: Part, target: Part, depth: int, drawing: Drawing, features: Tensor
    ) -> None:
        self.depth, self._drawing = depth, drawing
        self._draft, self._target = draft, target
        device = features.device
        self.features = features  # [layers, 1 + depth, E]: of the last verification
        self._keys = [_Sent(1 + part.num_keys, device) for part in (draft, target)]
        self._params = _Sent(2 * NUM_PARAMS, device)
        self._taken = torch.zeros(_NUM_TAKEN, dtype=torch.int32, device=device)
        self._guesses = torch.zeros(_NUM_TAKEN, dtype=torch.int32, device=device)
        self.count = torch.zeros(1, dtype=torch.int32, device=device)
        self.picks = torch.zeros((depth, 3), device=device)
        self._turns = [_turns(part) for part in (draft, target)]
        self._draft_batch = self._new_batch(draft, 2 * depth, depth, 0)
        self._target_batch = self._new_batch(target, 1 + depth, 1 + depth, 1)
        self._give_places()
        self.logits: Tensor
        self.best: Best
        self.handed_out: HandedOut
        self._replays: tuple[Replay, Replay]

    def _new_batch(self, part: Part, num_tokens: int, num_wanted: int, idx: int) -> CudaBatch:
        batch, device = copy(part.batch), self.count.device
        inputs = Inputs(num_tokens, num_wanted, batch.shape.head_dim, 1, device)
        inputs.key_slots = self._keys[idx].device
        inputs.wanted.copy_(torch.arange(num_wanted, dtype=torch.int32))
        batch.placed, batch.num_splits, batch.tapped = inputs, part.num_splits, []
        batch.recording = None
        return batch

    def _give_places(self) -> None:
        """What is given besides hidden states is the same in all rounds: by place."""
        given, inputs = self._draft.batch.given, self._draft_batch.inputs()
        assert given is not None
        num_known = len(given.arrays[0]) - self.depth + 1
        inputs.given = GivenInputs(given, inputs.num_tokens, self.count.device)
        for array, rows in zip(given.arrays, inputs.given.rows, strict=True):
            known = np.repeat(array[:1], 1 + self.depth, axis=0)
            whole = np.concatenate((known, array[num_known:]))
            rows.copy_(torch.from_numpy(whole))

    def record(self, recorder: Recorder) -> None:
        """Run once over dump slots, which compiles what is new, then keep it."""
        drawn = self._drawing.drawn.clone()
        for sent, part in zip(self._keys, (self._draft, self._target), strict=True):
            sent.device.fill_(part.store.dump_slot)
        self._guess()
        self._verify()
        guessing, _ = recorder.record(
            self._guess, self._draft_batch, self._draft.store.num_layers, is_first=False
        )
        verifying, (self.logits, self.best) = recorder.record(
            self._verify, self._target_batch, self._target.store.num_layers, is_first=False
        )
        self._drawing.drawn.copy_(drawn)
        assert self._target_batch.handed_out is not None
        shapes = self._target_batch.handed_out.shapes
        self.handed_out = HandedOut(self.features.view(-1), shapes)
        self._replays = guessing, verifying

    def send(self, follow: Follow) -> None:
        words = np.zeros(NUM_PARAMS, np.int64)
        words[:3] = (len(follow.guesses), *follow.rows)
        words[3:6] = follow.noise
        words[GUESSES_AT.value : GUESSES_AT.value + len(follow.guesses)] = follow.guesses
        self._params.send((0, words.view(np.int32)))
        for sent, slots, part in zip(
            self._keys, follow.slots, (self._draft, self._target), strict=True
        ):
            sent.send((0, np.array([part.store.dump_slot])), (1, slots))

    def guess(self) -> None:
        self._replays[0].replay()

    def verify(self) -> None:
        self._replays[1].replay()

    def _guess(self) -> tuple[Tensor, None]:
        params = self._params.device.view(torch.int64)
        batch, inputs = self._draft_batch, self._draft_batch.inputs()
        accept_guesses[(1,)](params, self._drawing.drawn, self._taken, self.count, _NUM_TAKEN)
        self._place(0, HEAD, DRAFT_ROW.value)
        given = inputs.given
        assert given is not None
        num_layers, _, width = self.features.shape
        give_features[(inputs.num_tokens, num_layers)](
            params, self.count, self.features, given.rows[0], given.noise, self.depth,
            inputs.num_tokens, width, triton.next_power_of_2(width),
        )  # fmt: skip
        rows: Any = self._draft.body(batch, self._draft.store)
        assert isinstance(rows, Rows), rows
        self.picks.copy_(rows.data)
        block = triton.next_power_of_2(self.depth)
        keep_picks[(1,)](self.picks, self._guesses, self.depth, block)
        return self.picks, None

    def _verify(self) -> tuple[Tensor, Best]:
        self._place(1, CHAIN, TARGET_ROW.value)
        batch = self._target_batch
        logits = logits_of(self._target.body, batch, self._target.store)
        best = self._drawing.best(logits)
        assert batch.handed_out is not None
        self.features.copy_(batch.handed_out.rows(1 + self.depth))
        return logits, best

    def _place(self, idx: int, kind: int, row_at: int) -> None:
        batch = (self._draft_batch, self._target_batch)[idx]
        part = (self._draft, self._target)[idx]
        inputs, dim = batch.inputs(), batch.shape.head_dim
        place_chain[(inputs.num_tokens,)](
            self._params.device.view(torch.int64), self._taken, self.count, self._guesses,
            inputs.tokens, inputs.wanted, inputs.key_slots, self._turns[idx], inputs.rotations,
            part.store.dump_slot, 0, kind, row_at, self.depth, inputs.num_tokens, dim,
            triton.next_power_of_2(dim), triton.next_power_of_2(self.depth),
        )  # fmt: skip


def _turns(part: Part) -> Tensor:
    """[rows, head_dim]: cos and sin of every row that the part has room for."""
    turns = part.batch.rope.rotations(np.arange(part.num_keys))
    return torch.from_numpy(np.ascontiguousarray(turns)).to(part.batch.device)
