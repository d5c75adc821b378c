"""Counters of what an engine has done so far, updated at commit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final

from forerun.speculation.choice import Choice, Reason
from forerun.types import Proposal, Verdict


@dataclass
class DrafterCounts:
    """One drafter's guesses. All nodes of a tree count at their depth, where one can be right."""

    num_drafts: int = 0  # rounds with guesses
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    _chains: Counter[int] = field(default_factory=Counter)  # by length
    _nodes: Counter[int] = field(default_factory=Counter)  # of other trees, by depth
    _accepted: Counter[int] = field(default_factory=Counter)  # rounds, by accepted guesses

    def observe(self, proposal: Proposal, num_accepted: int) -> None:
        self.num_drafts += 1
        self.num_draft_tokens += len(proposal)
        self.num_accepted_tokens += num_accepted
        self._accepted[num_accepted] += 1
        if proposal.tree.is_chain:
            self._chains[len(proposal)] += 1
        else:
            self._nodes.update(proposal.tree.depths)

    def as_dict(self) -> dict[str, Any]:
        drafted, accepted = self._nodes.copy(), Counter[int]()
        for counts, lengths in ((drafted, self._chains), (accepted, self._accepted)):
            for length, num in lengths.items():
                counts.update(dict.fromkeys(range(1, length + 1), num))
        return {
            "num_drafts": self.num_drafts,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_tokens": self.num_accepted_tokens,
            "drafted_per_position": [drafted[depth] for depth in sorted(drafted)],
            "accepted_per_position": [accepted[depth] for depth in sorted(drafted)],
        }


_COUNTED: Final = (
    *("prompt_tokens", "cached_prompt_tokens", "emitted_tokens", "rounds"),
    *("passes", "pass_tokens", "preemptions", "drafter_failures"),
)


class Metrics:
    """Counters that only grow. The engine's thread writes; any thread may take a `snapshot`."""

    def __init__(self) -> None:
        self._lock = RLock()  # reentrant: garbage collected while it is held may end a request
        self._counts: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()  # stop, length, abort, error
        self._drafters: dict[str, DrafterCounts] = {}
        self._depths: Counter[int] = Counter()  # rounds, by the depth of their proposals
        self._choices: Counter[Reason] = Counter()  # rounds, by the reason for their depth

    def admitted(self, num_prompt_tokens: int, num_cached_tokens: int) -> None:
        """Count a request that runs for the first time."""
        with self._lock:
            self._counts["prompt_tokens"] += num_prompt_tokens
            self._counts["cached_prompt_tokens"] += num_cached_tokens

    def passed(self, num_tokens: int, num_preempted: int) -> None:
        """Count one target pass over `num_tokens` (prompts, decodes and guesses), and the requests
        that were preempted for it."""
        with self._lock:
            self._counts["passes"] += 1
            self._counts["pass_tokens"] += num_tokens
            self._counts["preemptions"] += num_preempted

    def emitted(self, choice: Choice | None, proposal: Proposal, verdict: Verdict) -> None:
        """Count one round of one request that emitted tokens."""
        with self._lock:
            self._counts["rounds"] += 1
            self._counts["emitted_tokens"] += len(verdict.tokens)
            self._depths[proposal.depth] += 1
            if choice is None:
                return
            self._choices[choice.reason] += 1
            if choice.drafter is not None and len(proposal):
                counts = self._drafters.get(choice.drafter)
                if counts is None:
                    counts = self._drafters[choice.drafter] = DrafterCounts()
                counts.observe(proposal, verdict.num_accepted)

    def ended(self, outcome: str, num_drafter_failures: int) -> None:
        with self._lock:
            self._outcomes[outcome] += 1
            self._counts["drafter_failures"] += num_drafter_failures

    def snapshot(self) -> dict[str, Any]:
        """Return all counts at one moment, as plain numbers."""
        with self._lock:
            counts = {name: self._counts[name] for name in _COUNTED}
            return {
                "requests": dict(self._outcomes),
                **counts,
                "rounds_by_depth": dict(self._depths),
                "choices": {r.name.lower(): num for r, num in self._choices.items()},
                "tokens_per_pass": counts["emitted_tokens"] / max(1, counts["passes"]),
                "drafters": {name: found.as_dict() for name, found in self._drafters.items()},
            }
