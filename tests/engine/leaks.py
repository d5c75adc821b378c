"""After everything has ended: not one page, place or memory of a drafter is left."""

from __future__ import annotations

from forerun.engine import LLM


def assert_nothing_is_held(llm: LLM) -> None:
    assert not any(llm.in_use().values()), llm.in_use()
