"""A request as speculation sees it."""

from __future__ import annotations

from typing import Protocol

from forerun.drafters import RequestView


class RequestLimits(Protocol):
    """What a request allows, within what the engine was started with; None: all of that."""

    @property
    def drafter(self) -> str | None: ...

    @property
    def num_speculative_tokens(self) -> int | None: ...

    @property
    def num_branches(self) -> int | None: ...

    def allows(self, drafter: str) -> bool: ...


class SpeculativeRequest(RequestView, Protocol):
    """What drafters see, what it allows, and how much of its answer is left."""

    @property
    def speculation(self) -> RequestLimits: ...

    @property
    def num_left(self) -> int:
        """Tokens it may still emit."""
        ...
