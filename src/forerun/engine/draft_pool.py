"""A draft model's cache, as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.drafters import DraftModel
from forerun.engine.request import Request


@dataclass(frozen=True)
class DraftPool:
    """Only requests that may ask the drafter `name` have a use for it."""

    name: str
    model: DraftModel
    requests: Mapping[int, Request]

    @property
    def num_pages(self) -> int:
        return self.model.num_pages

    @property
    def num_free(self) -> int:
        return self.model.num_free

    def pages_for(self, num_rows: int) -> int:
        return self.model.pages_for(num_rows)

    def num_missing(self, request_id: int, num_rows: int) -> int:
        if not self.requests[request_id].may_ask(self.name):
            return 0
        return self.model.num_missing(request_id, num_rows)

    def seat(self, request_id: int) -> None:
        self.model.seat(request_id)

    def unseat(self, request_id: int) -> None:
        self.model.unseat(request_id)
