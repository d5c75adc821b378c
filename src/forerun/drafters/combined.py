"""Drafters made of drafters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from forerun.drafters.base import Budget, CachedDrafter, Drafter, RequestView, TappedDrafter
from forerun.types import ROOT, FloatArray, Proposal, ProposalBuilder, Verdict

# Draws that a single drafter may make in a round; the next one starts after them.
_DRAWS_EACH: Final = 1 << 16


class _Several:
    """What both combinations share: their parts, and who guessed which nodes."""

    picks = False

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.parts = tuple(drafters)
        # For each request and part: node of the combined proposal -> node of the part's own.
        self._nodes: dict[int, list[dict[int, int]]] = {}

    @property
    def num_requests(self) -> int:
        return max(len(self._nodes), *(drafter.num_requests for drafter in self.parts))

    def begin(self, request: RequestView) -> None:
        for drafter in self.parts:
            drafter.begin(request)

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        """Each part hears how far the text followed *its* guesses."""
        maps = self._nodes.pop(request.id, [{} for _ in self.parts])
        for drafter, nodes in zip(self.parts, maps, strict=True):
            own = tuple(nodes[node] for node in verdict.path if node in nodes)
            drafter.commit(request, verdict._replace(path=own))

    @property
    def layers(self) -> tuple[int, ...]:
        tapped = [d.layers for d in self.parts if isinstance(d, TappedDrafter)]
        return tuple(sorted(set().union(*tapped)))

    def num_behind(self, request: RequestView) -> int:
        tapped = (d for d in self.parts if isinstance(d, TappedDrafter))
        return max((d.num_behind(request) for d in tapped), default=0)

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:
        for drafter in self.parts:
            if isinstance(drafter, TappedDrafter):
                drafter.tapped(request, start, rows)

    @property
    def _cached(self) -> list[CachedDrafter]:
        return [drafter for drafter in self.parts if isinstance(drafter, CachedDrafter)]

    @property
    def max_len(self) -> int:
        """As far as one of the parts can see."""
        if len(self._cached) < len(self.parts):
            return sys.maxsize
        return max(drafter.max_len for drafter in self._cached)

    @property
    def row_bytes(self) -> int:
        return sum(drafter.row_bytes for drafter in self._cached)

    def num_pages_in_use(self) -> int:
        return sum(drafter.num_pages_in_use() for drafter in self._cached)

    def allocate(self, num_pages: int, page_size: int) -> None:
        for drafter in self._cached:
            drafter.allocate(num_pages, page_size)

    def has_room_for(self, request: RequestView) -> bool:
        """A part that has none is silent; the others guess."""
        has_room = [drafter.has_room_for(request) for drafter in self._cached]
        return len(has_room) < len(self.parts) or any(has_room)

    def is_waiting(self, request: RequestView) -> bool:
        return any(drafter.is_waiting(request) for drafter in self._cached)

    def evict(self, request: RequestView) -> None:
        for drafter in self._cached:
            drafter.evict(request)

    def end(self, request: RequestView) -> None:
        self._nodes.pop(request.id, None)
        for drafter in self.parts:
            drafter.end(request)


class Hybrid(_Several):
    """Cheap first: each drafter is asked only where those before it were silent."""

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        found = [Proposal.empty() for _ in requests]
        for part, drafter in enumerate(self.parts):
            silent = [idx for idx, proposal in enumerate(found) if not len(proposal)]
            asked = [requests[idx] for idx in silent]
            answers = drafter.propose(asked, [budgets[idx] for idx in silent])
            for idx, proposal in zip(silent, answers, strict=True):
                found[idx] = proposal
                maps: list[dict[int, int]] = [{} for _ in self.parts]
                maps[part] = {node: node for node in range(len(proposal))}
                self._nodes[requests[idx].id] = maps
        return found


class Merge(_Several):
    """The chains of several drafters in one prefix tree (Miao et al. 2024, SpecInfer)."""

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        rows = []
        for part, drafter in enumerate(self.parts):
            apart = [replace(b, first_draw=b.first_draw + part * _DRAWS_EACH) for b in budgets]
            rows.append(drafter.propose(requests, apart))
        return [
            self._merged(request, proposals)
            for request, *proposals in zip(requests, *rows, strict=True)
        ]

    def _merged(self, request: RequestView, proposals: Sequence[Proposal]) -> Proposal:
        builder = ProposalBuilder()
        maps: list[dict[int, int]] = []
        for proposal in proposals:
            merged_of = {ROOT: ROOT}  # the part's node -> the tree's
            for draw in proposal.draws:
                parent = merged_of[proposal.tree.parents[draw.node]]
                token = proposal.tokens[draw.node]
                merged_of[draw.node] = builder.add(parent, token, draw.probs_q)
            maps.append({merged: own for own, merged in merged_of.items() if own != ROOT})
        self._nodes[request.id] = maps
        return builder.build()
