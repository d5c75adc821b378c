"""A round that was begun before the host knew how many of the previous guesses were accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.kernels.cuda.drawing import Started
from forerun.kernels.cuda.heads.given import HiddenStates
from forerun.kernels.cuda.host_copies import HostCopy
from forerun.kernels.cuda.passes.asked import Asked
from forerun.kernels.cuda.rounds.buffers import DRAFT, TARGET, Follow, are_same
from forerun.kernels.cuda.rounds.drafts import Draft, ModelDraft, Settled
from forerun.kernels.cuda.rounds.round import RoundGraph
from forerun.kernels.scores import Scores


@dataclass
class Begun:
    """A begun round. Passes that are asked for are compared with its own; if one differs, the round
    is discarded."""

    draft: Draft  # of the previous round
    verified: Asked  # the previous round's verification
    follow: Follow
    graph: RoundGraph
    found: HostCopy
    started: Started
    sent_out: HiddenStates | None  # of this round's pass
    settled: Settled | None = None
    guesses: tuple[int, ...] | None = None  # once the host has waited for them

    def settle(self, tokens: Sequence[int]) -> None:
        count = 0
        for guess, token in zip(self.follow.guesses, tokens, strict=False):
            if guess != token:
                break
            count += 1
        row, slots = self.follow.rows[DRAFT], self.follow.slots[DRAFT]
        self.settled = Settled(tokens, count, row, slots)

    def drafted(self, one: Asked) -> Scores | None:
        """Return the result of the drafter's pass `one` if this round has run it, or None."""
        settled, draft = self.settled, self.draft
        assert settled is not None, "nobody has waited for the round before"
        if isinstance(draft, ModelDraft):
            place = draft.is_repeated(one, settled, self.guesses or ())
            return None if place is None else Scores([None], [self._wait()[place]])
        if not draft.is_repeated(one, settled) or not self._is_fed(one):
            return None
        self._wait()
        return Scores(self.found.wait().copy())

    def _is_fed(self, one: Asked) -> bool:
        """Whether the head is given exactly what the verification hands out; checked once.

        A pass that serves several heads also hands out layers that this head does not read.
        """
        given, sent_out, num = one.batch.given, self.verified.batch.sent_out, self.num_new
        if self.graph.is_fed is None:
            assert given is not None
            assert sent_out is not None
            pairs = zip(given.arrays, sent_out.views(), strict=False)
            self.graph.is_fed = all(np.array_equal(a[:num], b[:num]) for a, b in pairs)
        return self.graph.is_fed

    @property
    def num_new(self) -> int:
        """Tokens that the previous round emitted."""
        assert self.settled is not None, "nobody has waited for the round before"
        return self.settled.count + 1

    def _wait(self) -> tuple[int, ...]:
        if self.guesses is None:
            found = self.found.wait()
            found = found if found.ndim == 1 else found[:, 0]
            self.guesses = tuple([int(token) for token in found.tolist()])
        return self.guesses

    def is_for(self, one: Asked) -> bool:
        """Whether the pass `one` verifies this round's guesses, or the first of them."""
        row, settled, before = one.row, self.settled, self.verified
        if row is None or settled is None or self.guesses is None:
            return False
        draw, last = one.draws[0] if one.draws else None, before.draws[0]
        return (
            draw is not None
            and last is not None
            and one.body == before.body
            and one.store is before.store
            and row.table is before.batch.plan.rows[0].table
            and row.span.tree.is_chain
            and row.span.start == self.follow.rows[TARGET] + settled.count
            and row.span.tokens == (settled.new[-1], *self.guesses)[: len(row.span)]
            and are_same(row.slots, self.follow.slots[TARGET][: len(row.slots)])
            and len(row.span.wanted) == len(row.span)
            and draw.params is last.params
            and not draw.changes_logits  # as a grammar that begins here does
            and draw.noise is last.noise
            and draw.position == last.position + settled.count + 1
        )
