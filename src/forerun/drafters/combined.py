"""Drafters that combine several drafters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from forerun.drafters.base import Budget, CachedDrafter, Drafter, RequestView, TappedDrafter
from forerun.types import ROOT, FloatArray, Proposal, ProposalBuilder, Verdict

# Draws of a round's random stream that are reserved for each part.
_DRAWS_EACH: Final = 1 << 16


class _Several:
    """Base class: the parts, and which part guessed which nodes."""

    picks = False

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.parts = tuple(drafters)
        # By request id, for each part: node of the combined proposal -> node of the part's own.
        self._nodes: dict[int, list[dict[int, int]]] = {}

    @property
    def num_requests(self) -> int:
        return max(len(self._nodes), *(drafter.num_requests for drafter in self.parts))

    def begin(self, request: RequestView) -> None:
        for drafter in self.parts:
            drafter.begin(request)

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        """Tell each part which of *its own* guesses were accepted."""
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
        """The longest text that any part can continue."""
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
        """Return whether any part could guess; parts without room return empty proposals."""
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
    """Takes the first part's guesses; asks the next part only for requests still without any."""

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
    """Merges the proposals of all parts into one prefix tree (Miao et al. 2024, SpecInfer)."""

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
            merged_of = {ROOT: ROOT}  # node of the part's proposal -> node of the merged one
            for draw in proposal.draws:
                parent = merged_of[proposal.tree.parents[draw.node]]
                token = proposal.tokens[draw.node]
                merged_of[draw.node] = builder.add(parent, token, draw.probs_q)
            maps.append({merged: own for own, merged in merged_of.items() if own != ROOT})
        self._nodes[request.id] = maps
        return builder.build()
