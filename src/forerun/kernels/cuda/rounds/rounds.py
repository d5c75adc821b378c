"""Which rounds are begun early: those that can be expected to repeat the one under way."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from forerun.kernels.base import ChainNoise
from forerun.kernels.cuda.asked_draws import AskedDraws
from forerun.kernels.cuda.batch import bucket
from forerun.kernels.cuda.drawing import Drawing
from forerun.kernels.cuda.passes.asked import Asked
from forerun.kernels.cuda.passes.recording import Recorder
from forerun.kernels.cuda.rounds.begun import Begun
from forerun.kernels.cuda.rounds.buffers import TARGET, Follow, Room, RoundBuffers
from forerun.kernels.cuda.rounds.drafts import Draft, HeadDraft, ModelDraft, is_greedy, slots_of
from forerun.kernels.cuda.rounds.kernels import MOST_GUESSES
from forerun.kernels.cuda.rounds.round import RoundGraph
from forerun.kernels.cuda.store import KVStore
from forerun.kernels.scores import Scores

_NUM_KEYS: Final = (1 << 11, 1 << 13, 1 << 15, 1 << 17)
_MAX_KEPT: Final = 64


@dataclass
class Rounds:
    """The latest guesses, and the round that was begun behind their verification."""

    drawing: Drawing
    recorder: Recorder
    num_splits: Callable[[int], int]
    is_on: bool = True  # else nothing is begun
    begun: Begun | None = None
    _draft: Draft | None = None
    _graphs: WeakKeyDictionary[KVStore, OrderedDict[Any, RoundGraph | None]] = field(
        default_factory=WeakKeyDictionary
    )

    @property
    def has_guessed(self) -> bool:
        """Whether the last pass may have been a drafter's."""
        return self._draft is not None

    def forget(self) -> None:
        """Drop all references to caches."""
        self.begun = self._draft = None

    def note(self, one: Asked, scores: Scores) -> None:
        """Note a pass and its result, in case it is a draft.

        A draft is valid for the next pass only: after that, its requests may have ended and its
        slots may belong to other requests.
        """
        plan = one.batch.plan
        if not plan.is_draft:
            self._draft = None
            return
        if one.batch.given is not None:
            is_chain = plan.next_slots is not None
            self._draft = HeadDraft(one, scores.all_rows()) if is_chain else None
            return
        token = scores.token(0) if len(scores) == 1 and is_greedy(one.draws) else None
        draft = self._draft
        if token is None:
            self._draft = None
        elif isinstance(draft, ModelDraft) and draft.goes_on(one):
            self._draft = replace(draft, tokens=(*draft.tokens, token))
        else:
            self._draft = ModelDraft(one, (token,))

    def begin(self, one: Asked) -> Begun | None:
        """Begin the next round behind the verification `one`, which is under way, if possible."""
        draft, row, draws = self._draft, one.row, one.draws
        if not self.is_on or draft is None or row is None or len(row.span) < 2 or draws[0] is None:
            return None
        is_whole = row.span.tokens[1:] == draft.tokens and len(row.span.wanted) == len(row.span)
        if not is_whole or not row.span.tree.is_chain or draws[0].changes_logits:
            return None
        follow = _follow(draft, one)
        graph = None if follow is None else self._graph(draft, one, follow)
        if follow is None or graph is None or graph.is_fed is False:
            return None
        graph.send(follow, one.batch.handed_out)
        graph.guess.replay()
        found = graph.copies.start(graph.found)
        sent_out = graph.run_verify()
        asked = AskedDraws.next_round(draws[0])
        started = self.drawing.start(graph.logits, graph.best, asked, graph.count)
        return Begun(draft, one, follow, graph, found, started, sent_out)

    def _graph(self, draft: Draft, one: Asked, follow: Follow) -> RoundGraph | None:
        most = max(map(len, follow.slots))
        size = bucket(most + 1, _NUM_KEYS)
        if size is None:
            return None
        splits = self.num_splits(most)
        if splits > 1:  # splits after the last key end at once: cheaper than another graph
            splits = max(splits, self.num_splits(_NUM_KEYS[0]))
        graphs = self._graphs.get(one.store)
        if graphs is None:
            graphs = self._graphs[one.store] = OrderedDict()
        key = draft.one.body, one.body, ref(draft.one.store), size, splits, draft.depth
        graph = graphs.get(key)
        if graph is None and key not in graphs:
            rooms = Room(draft.one, splits, size), Room(one, splits, size)
            like = *key[:3], draft.depth, splits == 1  # these have the same kernels
            is_new = all(like != (*other[:3], other[5], other[4] == 1) for other in graphs)
            graph = graphs[key] = self._record(draft, rooms, is_new)
            if len(graphs) > _MAX_KEPT:
                graphs.popitem(last=False)
        return graph

    def _record(self, draft: Draft, rooms: tuple[Room, Room], is_new: bool) -> RoundGraph | None:
        """Record a round, or return None if the head is not given what the target hands out."""
        if isinstance(draft, HeadDraft) and not draft.takes(rooms[TARGET].one.batch.handed_out):
            return None
        buffers = RoundBuffers(rooms, draft.depth, self.drawing)
        return RoundGraph.record(draft, buffers, self.recorder, is_new=is_new)


def _follow(draft: Draft, one: Asked) -> Follow | None:
    """Describe the next round, or return None if it has too few slots or too many guesses."""
    slots, target_slots = slots_of(draft.one), slots_of(one)
    assert one.row is not None
    rows, depth = (draft.next_row, one.row.span.start + 1), draft.depth
    if slots is None or target_slots is None or depth > MOST_GUESSES:
        return None
    num_rows = rows[0] + 2 * depth, rows[1] + 2 * depth + 1
    if len(slots) < num_rows[0] or len(target_slots) < num_rows[1]:
        return None
    noise = draft.noise
    after = ChainNoise(noise.temperature, noise.key, noise.position + 1)
    return Follow(draft.tokens, rows, (slots, target_slots), num_rows, after)
