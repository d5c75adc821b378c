"""After everything has ended: not one page, running place or memory of a drafter is left."""

from __future__ import annotations

from collections.abc import Iterator

from forerun.drafters import Drafter, DraftModel
from forerun.engine import LLM
from forerun.engine.step import Core


def all_drafters(core: Core) -> Iterator[Drafter]:
    """Those of an engine, and their parts."""
    if core.speculation is not None:
        for drafter in core.speculation.drafters.drafters.values():
            yield from getattr(drafter, "parts", ())
            yield getattr(drafter, "drafter", drafter)  # of one that throws


def draft_models(core: Core) -> list[DraftModel]:
    return [drafter for drafter in all_drafters(core) if isinstance(drafter, DraftModel)]


def assert_nothing_is_held(llm: LLM) -> None:
    core = llm.engine.core
    assert core.scheduler.is_idle
    assert not core.requests
    assert not llm._unread
    assert core.cache.pool.num_free == core.cache.pool.num_pages
    for model in draft_models(core):
        assert model.num_free == model.num_pages
    for drafter in all_drafters(core):
        for name in ("_nodes", "_texts", "_tables", "_rows", "_alignments"):
            assert not getattr(drafter, name, ()), (type(drafter).__name__, name)
