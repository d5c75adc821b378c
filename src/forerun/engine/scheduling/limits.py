"""How large a batch may be, and which requests could never run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from forerun.engine.scheduling.pool import Pool
from forerun.engine.scheduling.queue import Schedulable
from forerun.errors import InvalidOption, RequestTooLarge
from forerun.option_checks import require_whole

MAX_PRIORITY: Final = 100  # in absolute value: bounded, so that ageing always catches up


@dataclass(frozen=True)
class SchedulerLimits:
    """The limits of a batch. `max_num_batched_tokens` bounds prompts, decodes and guesses together.

    A request of priority p is ranked as if it had arrived p · `ageing` steps later, so every
    waiting request becomes the first in rank eventually. A request is admitted only if there is
    room for `headroom` more tokens of each running request, so that none is preempted at once.
    """

    max_model_len: int
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 256
    ageing: int = 256
    headroom: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name == "headroom" else 1
            require_whole(field.name, getattr(self, field.name), least)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise InvalidOption(
                f"max_num_batched_tokens={self.max_num_batched_tokens} leaves no token for some "
                f"of max_num_seqs={self.max_num_seqs} requests; raise the one or lower the other."
            )

    def check(self, request: Schedulable, target: Pool) -> None:
        """Raise `RequestTooLarge` if the context or the whole cache is too small for `request`."""
        assert abs(request.priority) <= MAX_PRIORITY, request.priority
        if request.max_num_tokens > self.max_model_len:
            raise RequestTooLarge(
                f"this model's maximum context length is {self.max_model_len} tokens, the prompt "
                f"has {request.num_tokens} and max_tokens is "
                f"{request.max_num_tokens - request.num_tokens}; shorten the prompt or lower "
                f"max_tokens."
            )
        num_pages = target.pages_for(request.max_num_tokens)
        if num_pages > target.num_pages:
            raise RequestTooLarge(
                f"prompt and max_tokens need {num_pages} pages and the whole cache has "
                f"{target.num_pages}; lower max_tokens or give the cache more memory."
            )
