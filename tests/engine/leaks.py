"""After everything has ended: not one page, running place or memory of a drafter is left."""

from __future__ import annotations

from forerun.drafters import Drafter, DraftModel
from forerun.engine import LLM


def assert_nothing_is_held(llm: LLM) -> None:
    core = llm.engine.core
    assert core.scheduler.is_idle
    assert not core.requests
    assert not llm._unread
    assert core.cache.pool.num_free == core.cache.pool.num_pages
    if core.speculation is None:
        return
    for model in core.speculation.models:
        assert model.num_free == model.num_pages
    for drafter in core.speculation.drafters.drafters.values():
        _assert_empty(drafter)


def _assert_empty(drafter: Drafter) -> None:
    for part in getattr(drafter, "_drafters", ()):
        _assert_empty(part)
    drafter = getattr(drafter, "_drafter", drafter)  # of one that throws
    for name in ("_nodes", "_texts", "_tables", "_rows", "_alignments"):
        assert not getattr(drafter, name, ()), (type(drafter).__name__, name)
    if isinstance(drafter, DraftModel):
        assert drafter.num_free == drafter.num_pages
