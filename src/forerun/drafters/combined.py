"""Drafters made of drafters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from forerun.drafters.base import Budget, Drafter, RequestView
from forerun.types import ROOT, Proposal, ProposalBuilder, Verdict

# Draws that a single drafter may make in a round; the next one starts after them.
_DRAWS_EACH: Final = 1 << 16


class _Several:
    """What both combinations share: their parts, and who guessed which nodes."""

    offers = False

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)
        # For each request and part: node of the combined proposal -> node of the part's own.
        self._nodes: dict[int, list[dict[int, int]]] = {}

    def begin(self, request: RequestView) -> None:
        for drafter in self._drafters:
            drafter.begin(request)

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        """Each part hears how far the text followed *its* guesses."""
        maps = self._nodes.pop(request.id, [{} for _ in self._drafters])
        for drafter, nodes in zip(self._drafters, maps, strict=True):
            own = tuple(nodes[node] for node in verdict.path if node in nodes)
            drafter.commit(request, replace(verdict, path=own))

    def end(self, request: RequestView) -> None:
        self._nodes.pop(request.id, None)
        for drafter in self._drafters:
            drafter.end(request)


class Hybrid(_Several):
    """Cheap first: each drafter is asked only where those before it were silent."""

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        found = [Proposal.empty() for _ in requests]
        for part, drafter in enumerate(self._drafters):
            silent = [idx for idx, proposal in enumerate(found) if not len(proposal)]
            asked = [requests[idx] for idx in silent]
            answers = drafter.propose(asked, [budgets[idx] for idx in silent])
            for idx, proposal in zip(silent, answers, strict=True):
                found[idx] = proposal
                maps: list[dict[int, int]] = [{} for _ in self._drafters]
                maps[part] = {node: node for node in range(len(proposal))}
                self._nodes[requests[idx].id] = maps
        return found


class Merge(_Several):
    """The chains of several drafters in one prefix tree (Miao et al. 2024, SpecInfer)."""

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        rows = []
        for part, drafter in enumerate(self._drafters):
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
