"""Where the seconds of one step went."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class StepTimes:
    """The times of one step, filled in as it goes and given to the controller after the commit.

    `clock` is the only clock that a step reads.
    """

    clock: Callable[[], float] = time.perf_counter
    num_requests: int = 0
    num_tokens: int = 0  # of the pass: prompts, decodes and guesses
    num_guesses: int = 0
    pass_seconds: float = 0.0  # including the head start
    head_start: float = 0.0  # of the pass, done before the step asked for it
    look_seconds: float = 0.0  # of the choice, without drafters' answers
    rest_seconds: float = 0.0
    # Of each answer: the drafter, the number of requests, its guesses by depth, seconds.
    drafts: list[tuple[str, int, Sequence[int], float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def finish(self) -> None:
        """Compute the rest: all time that is neither the pass, nor a draft, nor the choice."""
        known = self.pass_seconds - self.head_start + self.look_seconds
        for *_, seconds in self.drafts:
            known += seconds
        self.rest_seconds = self.clock() - self._began - known
