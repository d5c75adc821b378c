"""Leak check: after all requests have ended, no page, place or drafter entry is left."""

from __future__ import annotations

from forerun.engine import LLM


def assert_nothing_is_held(llm: LLM) -> None:
    assert not any(llm.in_use().values()), llm.in_use()
