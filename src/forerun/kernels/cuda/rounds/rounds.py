"""Which rounds are begun early: those that may be like the one under way."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from forerun.kernels.base import Body
from forerun.kernels.cuda.asked_draws import AskedDraws
from forerun.kernels.cuda.batch import CudaBatch, bucket
from forerun.kernels.cuda.drawing import Drawing
from forerun.kernels.cuda.heads.given import NUM_TURNS, HandedOut, SentOut
from forerun.kernels.cuda.passes.recording import Recorder
from forerun.kernels.cuda.rounds.begun import Begun, Drafted
from forerun.kernels.cuda.rounds.kernels import MOST_GUESSES
from forerun.kernels.cuda.rounds.round import Follow, Part, RoundGraph
from forerun.kernels.cuda.store import KVStore
from forerun.kernels.plan import PlanRow
from forerun.sampling import CoupledDraws

_NUM_KEYS: Final = (1 << 11, 1 << 13, 1 << 15, 1 << 17)
_MAX_KEPT: Final = 8


@dataclass(frozen=True)
class Verified:
    """A verification that the device has begun, and where its hidden states will be."""

    body: Body
    batch: CudaBatch
    store: KVStore
    row: PlanRow
    draw: CoupledDraws
    handed_out: HandedOut
    sent_out: SentOut


@dataclass
class Rounds:
    """The latest guesses, and the round that was begun behind their verification."""

    drawing: Drawing
    recorder: Recorder
    num_splits: Callable[[int], int]
    drafted: Drafted | None = None
    begun: Begun | None = None
    _graphs: OrderedDict[Any, RoundGraph] = field(default_factory=OrderedDict)
    _hosts: dict[int, list[tuple[Tensor, Any]]] = field(default_factory=dict)
    _turn: int = 0

    def begin(self, verified: Verified) -> Begun | None:
        """Guesses, and their verification, behind one that is under way."""
        drafted, row = self.drafted, verified.row
        if drafted is None or row.span.tokens[1:] != drafted.tokens:
            return None
        follow = _follow(drafted, verified)
        if follow is None:
            return None
        graph = self._graph(drafted, verified, follow)
        if graph is None:
            return None
        if verified.handed_out.data is not graph.handed_out.data:
            graph.features.copy_(verified.handed_out.rows(1 + drafted.depth))
        graph.send(follow)
        graph.guess()
        picks, are_picked = self._next_host(graph)
        picks.copy_(graph.picks, non_blocking=True)
        if are_picked is not None:
            are_picked.record()
        graph.verify()
        asked = AskedDraws.next_round(verified.draw)
        handed_out = graph.handed_out.send()
        started = self.drawing.start(graph.logits, graph.best, asked, graph.count)
        return Begun(
            drafted, row, verified.draw, verified.sent_out, verified.body, verified.store, follow, graph,
            picks, are_picked, started, handed_out,
        )  # fmt: skip

    def _graph(self, drafted: Drafted, verified: Verified, follow: Follow) -> RoundGraph | None:
        sizes = [bucket(len(slots) + 1, _NUM_KEYS) for slots in follow.slots]
        if None in sizes:
            return None
        num_splits = [self.num_splits(len(slots)) for slots in follow.slots]
        parts = [
            Part(one.body, one.batch, one.store, splits, size or 0)
            for one, splits, size in zip((drafted, verified), num_splits, sizes, strict=True)
        ]
        key = (*parts[0].key, *parts[1].key, drafted.depth)
        if key not in self._graphs:
            shape = verified.handed_out.rows(1 + drafted.depth).shape
            features = torch.zeros(shape, device=verified.batch.device)
            graph = RoundGraph(parts[0], parts[1], drafted.depth, self.drawing, features)
            graph.record(self.recorder)
            self._graphs[key] = graph
            if len(self._graphs) > _MAX_KEPT:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def _next_host(self, graph: RoundGraph) -> tuple[Tensor, Any]:
        hosts = self._hosts.setdefault(graph.depth, [])
        if not hosts:
            is_gpu = graph.picks.device.type == "cuda"
            for _ in range(NUM_TURNS):
                picks = torch.empty((graph.depth, 3), pin_memory=is_gpu)
                hosts.append((picks, torch.cuda.Event() if is_gpu else None))
        self._turn = (self._turn + 1) % NUM_TURNS
        return hosts[self._turn]


def _follow(drafted: Drafted, verified: Verified) -> Follow | None:
    """None: pages are short, or the next round needs the host."""
    plans = drafted.batch.plan, verified.batch.plan
    if drafted.depth > MOST_GUESSES or verified.draw.changes_logits:
        return None
    slots = []
    for plan in plans:
        more = plan.next_slots and plan.next_slots[0]
        if more is None:
            return None
        slots.append(np.concatenate((plan.rows[0].slots, more)))
    rows = drafted.row.span.start + drafted.num_known, verified.row.span.start + 1
    if len(slots[0]) < rows[0] + 2 * drafted.depth or len(slots[1]) < rows[1] + 2 * drafted.depth:
        return None
    noise = drafted.noise
    temperature = int(np.float64(noise.temperature).view(np.int64))
    key = noise.key - (noise.key >> 63 << 64)
    words = temperature, key, noise.position + 1
    return Follow(drafted.tokens, rows, (slots[0], slots[1]), words)
