"""Whole passes as recorded CUDA graphs, one recording for each size that occurs.

A pass is padded to the next size in `SIZES`, or to a larger one that is already recorded; padding
rows read and write the dump slot.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

import torch

from forerun.kernels.base import AttentionShape, Body
from forerun.kernels.cuda.asked_draws import AskedDraws, Draws
from forerun.kernels.cuda.batch import CudaBatch, bucket
from forerun.kernels.cuda.compiling import is_compiling
from forerun.kernels.cuda.drawing import Best, Drawing, Started
from forerun.kernels.cuda.passes.ahead import Ahead, parts_after
from forerun.kernels.cuda.passes.asked import Asked
from forerun.kernels.cuda.passes.body import launched, logits_of
from forerun.kernels.cuda.passes.columns import Columns
from forerun.kernels.cuda.passes.inputs import Inputs
from forerun.kernels.cuda.passes.kept import KeptPass, KeptPasses, Key
from forerun.kernels.cuda.passes.recording import Recorder, Replay
from forerun.kernels.cuda.rounds.rounds import Rounds
from forerun.kernels.cuda.store import KVStore
from forerun.kernels.scores import Scores

SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
# Of a head's chain, whose known tokens are padded: their number changes with every round.
_CHAIN_SIZES: Final = (16, 32, 64, 128, 256)
_KEY_SLOTS: Final = (1 << 14, 1 << 17, 1 << 20)
_MAX_KEPT: Final = 96


@dataclass
class Stopwatch:
    """Times each recorded pass by replaying it; a replay over the same batch changes nothing."""

    num_replays: int
    seconds: list[float] = field(default_factory=list)  # per pass on the device

    def time(self, recording: Replay) -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(self.num_replays):
            recording.replay()
        end.record()
        end.synchronize()
        self.seconds.append(begin.elapsed_time(end) / 1e3 / self.num_replays)


@dataclass
class _Pass(Asked):
    kept: KeptPasses

    def launched(self, drawing: Drawing) -> Scores:
        """Run the pass kernel by kernel, without a recording."""
        return launched(self.body, self.batch, self.store, drawing, self.draws)


class Graphs:
    """Runs passes by replaying the most recently used recordings of each store.

    Where a plan says what its requests do next (`Plan.next_slots`), the next pass is begun before
    the host reads this one's tokens, so that host and device work at the same time.
    """

    def __init__(
        self,
        num_splits: Callable[[int], int],
        kernels_of: Callable[[int, int, int, AttentionShape], Hashable],
        drawing: Drawing,
        recorder: Recorder,
        *,
        early_rounds: bool = True,
    ) -> None:
        self._drawing, self._recorder = drawing, recorder
        self._rounds = Rounds(drawing, recorder, num_splits, early_rounds)
        self._num_splits = num_splits  # of a number of keys
        self._kernels_of = kernels_of  # passes with equal results launch the same kernels
        self.stopwatch: Stopwatch | None = None
        self._lock = Lock()  # graphs share memory: one pass at a time, until its result is copied
        self._kept: WeakKeyDictionary[KVStore, KeptPasses] = WeakKeyDictionary()

    def run(self, body: Body, batch: CudaBatch, store: KVStore, draws: Draws) -> Scores:
        """Run a pass; return the tokens that `draws` describe, and the logits of all other rows."""
        with self._lock:
            kept = self._kept.get(store)
            if kept is None:
                kept = self._kept[store] = KeptPasses()
            one = _Pass(body, batch, store, draws, kept)
            scores = self._early(one)
            if scores is None:
                self._drawing.last = None  # `drawn` is overwritten from here on
                scores = self._run(one)
            self._rounds.note(one, scores)
            return scores

    @property
    def has_guessed(self) -> bool:
        return self._rounds.has_guessed

    def forget(self) -> None:
        """Discard what was begun early, and with it all references to caches."""
        with self._lock:
            self._rounds.forget()
            for of_store in self._kept.values():
                of_store.ahead = None

    def _early(self, one: _Pass) -> Scores | None:
        """Return the result of this pass if it was begun early and nothing has changed, or None."""
        batch, rounds = one.batch, self._rounds
        ahead, one.kept.ahead = one.kept.ahead, None
        begun, rounds.begun = rounds.begun, None
        if begun is not None:
            drafted = begun.drafted(one)
            if drafted is not None:
                rounds.begun = begun
                return drafted
            if begun.is_for(one):
                batch.handed_out, batch.sent_out = begun.graph.handed_out, begun.sent_out
                rows: Sequence[int] = range(len(batch.plan))
                return self._take(one, begun.started, begun.graph.logits, rows)
        if ahead is None or ahead.last is not self._drawing.last:
            return None
        found = ahead.rows_for(one.body, batch.plan, one.draws)
        if found is None:
            return None
        if ahead.sent_out is not None:
            batch.sent_out = ahead.sent_out.some(found)
        started = ahead.started or self._start_late(ahead, found, one.draws)
        return self._take(one, started, ahead.logits, found)

    def _start_late(self, ahead: Ahead, rows: Sequence[int], draws: Draws) -> Started:
        """Draw from the logits of a pass begun early, which the device may still be computing."""
        own = ahead.draws_for(rows, draws)
        asked = self._drawing.asked(ahead.logits, [1] * len(own), own)
        return self._drawing.start(ahead.logits, ahead.best, asked)

    def _run(self, one: _Pass) -> Scores:
        batch, graphs = one.batch, one.kept.graphs
        is_chain = batch.given is not None and batch.given.is_chain
        if is_chain:
            num = len(batch.plan)
            batch.fill((bucket(num, _CHAIN_SIZES) or num) - num, one.store.dump_slot)
        key = self._key(one.body, batch.columns)
        if key is None:
            return one.launched(self._drawing)
        if not is_chain:  # a chain is already padded
            key = one.kept.room_for(key)
        if key not in graphs:
            self._record(one, key)
        entry = graphs[key]
        graphs.move_to_end(key)
        batch.check(entry.num_embeddings)
        batch.send(batch.columns, entry.inputs, one.store.dump_slot)
        entry.recording.replay()
        batch.handed_out = entry.handed_out
        batch.send_out()
        if self.stopwatch is not None:
            self.stopwatch.time(entry.recording)
        if not any(one.draws):
            return self._drawing.all_logits(entry.logits, len(batch.columns.wanted))
        asked = self._drawing.asked(entry.logits, batch.num_wanted, one.draws)
        started = self._drawing.start(entry.logits, entry.best, asked)
        return self._take(one, started, entry.logits, None)

    def _take(
        self, one: _Pass, started: Started, logits: torch.Tensor, rows: Sequence[int] | None
    ) -> Scores:
        """Begin what follows, then wait for the tokens of this pass: of `rows`, or of all."""
        own_rows = range(len(one.draws)) if rows is None else rows
        ahead, begun = None, None
        if one.batch.plan.next_slots is not None and one.kept.may_begin():
            begun = self._rounds.begin(one)
            if begun is None and not started.asked.as_logits:
                ahead = self._begin_next(one, own_rows, started)
        tokens = self._drawing.tokens(started)
        if ahead or begun:
            one.kept.settle(is_left=min(tokens) < 0)
            if min(tokens) < 0:  # the host needs logits that were overwritten
                one.batch.plan = replace(one.batch.plan, next_slots=None)
                return self._run(one)
        if begun is not None:
            begun.settle(tokens)
            self._rounds.begun = begun
        if ahead is not None:
            ahead.tokens = [tokens[part.drawn] for part in ahead.parts]
            one.kept.ahead = ahead
        scores = self._drawing.scores(started, tokens, logits)
        return scores if rows is None else scores.some(rows)

    def _begin_next(self, one: _Pass, rows: Sequence[int], last: Started) -> Ahead | None:
        """Begin the next plain pass, or return None if it is unknown or of a new size.

        `rows`: where the pass under way, whose draws are `last`, has the rows of the plan. A new
        size is recorded when the engine first asks for it.
        """
        parts = parts_after(one.batch.plan, one.draws, rows)
        if parts is None:
            return None
        plan_rows, draws, drawn, slots = zip(*parts, strict=True)
        columns = Columns.after(plan_rows, drawn, slots)
        key = self._key(one.body, columns)
        key = None if key is None else one.kept.room_for(key)
        entry = None if key is None else one.kept.graphs.get(key)
        if key is None or entry is None:
            return None
        one.kept.graphs.move_to_end(key)
        one.batch.send(columns, entry.inputs, one.store.dump_slot)
        entry.recording.replay()
        sent_out = None if entry.handed_out is None else entry.handed_out.send()
        started = None
        if not any(draw.changes_logits for draw in draws):
            asked = AskedDraws.after(draws)
            started = last = self._drawing.start(entry.logits, entry.best, asked)
        return Ahead(one.body, parts, started, entry.logits, entry.best, last, sent_out)

    def _key(self, body: Body, columns: Columns) -> Key | None:
        """Return the padded size of a pass, or None if it is too large for a graph."""
        num_tokens = bucket(columns.num_tokens, SIZES)
        num_wanted = bucket(len(columns.wanted), (0, *SIZES))
        num_key_slots = bucket(columns.num_key_slots, _KEY_SLOTS)
        if num_tokens is None or num_wanted is None or num_key_slots is None:
            return None
        return body, num_tokens, num_wanted, self._num_splits(columns.most_keys), num_key_slots

    def _record(self, one: _Pass, key: Key) -> None:
        """Record a pass as a graph of size `key`.

        All its kernels must have been compiled and loaded before. If no pass with the same kernels
        has run, this one is run once first.
        """
        batch, store = one.batch, one.store
        body, num_tokens, num_wanted, num_splits, num_key_slots = key
        head_dim = batch.shape.head_dim
        inputs = Inputs(num_tokens, num_wanted, head_dim, num_key_slots, batch.device)
        batch.placed, batch.num_splits = inputs, num_splits

        def work() -> tuple[torch.Tensor, Best]:
            logits = logits_of(body, batch, store)
            return logits, self._drawing.best(logits)

        like = body, self._kernels_of(num_tokens, num_wanted, num_splits, batch.shape)
        batch.send(batch.columns, inputs, store.dump_slot)
        if like not in one.kept.launched and not is_compiling():
            work()
            one.kept.launched.add(like)
        is_first = not any(of_store.graphs for of_store in self._kept.values())
        recording, (logits, best) = self._recorder.record(
            work, batch, store.num_layers, is_first=is_first
        )
        graphs = one.kept.graphs
        graphs[key] = KeptPass(
            recording, inputs, logits, best, batch.handed_out, batch.num_embeddings
        )
        if len(graphs) > _MAX_KEPT:
            graphs.popitem(last=False)
