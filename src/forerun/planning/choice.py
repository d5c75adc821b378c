"""What the controller is asked, and what it answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Reason(StrEnum):
    """Why a choice was made, in a word for `stats` and `--trace`."""

    PAYS = "pays"  # the most tokens per second that are to be had
    NOTHING_PAYS = "nothing pays"  # guesses cost more than they would bring
    SILENT = "silent"  # no candidate has a guess
    NO_ROOM = "no room"  # the answer ends here
    PROBE = "probe"  # to see whether a costly drafter pays by now
    BASELINE = "baseline"  # to see what a plain pass costs by now
    FIXED = "fixed"  # the depth is not for the controller to choose
    NOT_LOOKED = "not looked"  # looks found nothing lately; this round is plain without one


class Candidate(NamedTuple):
    """A drafter that may guess for a request.

    `num_offered` is how deep its answer will be, where that is known: 0 where it is silent. In
    `rejection` it may depend on committed history only, never on what was drawn.
    """

    drafter: str
    num_offered: int | None = None
    num_parts: int = 1  # chains that each of its branches holds, where it merges drafters


class Standing(NamedTuple):
    """A request before a round: what it may spend, and who would guess for it."""

    request: int
    max_depth: int  # guesses that still fit into its answer
    candidates: tuple[Candidate, ...]
    max_branches: int | None = None  # fewer than the user's limit, where the request says so

    @property
    def may_guess(self) -> bool:
        return self.max_depth > 0 and any(c.num_offered != 0 for c in self.candidates)


class Company(NamedTuple):
    """Who else is in the pass, whatever is chosen."""

    num_idle: int = 0  # requests that go on by one token each
    num_prompt_tokens: int = 0

    def with_idle(self, num_more: int) -> Company:
        return self._replace(num_idle=self.num_idle + num_more)


ALONE: Final = Company()


class Choice(NamedTuple):
    """What a request spends this round. `expected_seconds` is the round's, for all requests."""

    drafter: str | None
    depth: int
    num_branches: int
    expected_tokens: float
    expected_seconds: float
    reason: Reason
    gain: float = 0.0  # tokens expected beyond what the time of the guesses would bring

    @property
    def words(self) -> str:
        """Like "pays: suffix to 4 × 2", or "nothing pays"."""
        if self.drafter is None or self.depth == 0:
            return str(self.reason)
        branches = f" × {self.num_branches}" if self.num_branches > 1 else ""
        return f"{self.reason}: {self.drafter} to {self.depth}{branches}"

    def __str__(self) -> str:
        if self.expected_seconds <= 0:  # nobody expected anything
            return self.words
        milliseconds = self.expected_seconds * 1e3
        return f"{self.words}, {self.expected_tokens:.2f} tokens expected in {milliseconds:.1f} ms"


# Choices that nobody weighed.
SILENT: Final = Choice(None, 0, 1, 0.0, 0.0, Reason.SILENT)
NO_ROOM: Final = Choice(None, 0, 1, 0.0, 0.0, Reason.NO_ROOM)
NOT_LOOKED: Final = Choice(None, 0, 1, 0.0, 0.0, Reason.NOT_LOOKED)
