"""Where the seconds of one step went."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class StepTimes:
    """Filled in as the step goes, and told to the controller once, when all is committed.

    `clock` is the only one that a step and its drafters look at.
    """

    clock: Callable[[], float] = time.perf_counter
    num_requests: int = 0
    num_tokens: int = 0  # that the pass ran: prompts, decodes and guesses
    num_guesses: int = 0
    pass_seconds: float = 0.0  # with its head start
    head_start: float = 0.0
    look_seconds: float = 0.0  # spent on the choice, drafters' answers aside
    rest_seconds: float = 0.0
    # Each answer: the drafter, for how many requests, its guesses by depth, seconds.
    drafts: list[tuple[str, int, Sequence[int], float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def finish(self) -> None:
        """What is neither the pass nor a draft nor the choice is the rest."""
        known = self.pass_seconds - self.head_start + self.look_seconds
        for *_, seconds in self.drafts:
            known += seconds
        self.rest_seconds = self.clock() - self._began - known
