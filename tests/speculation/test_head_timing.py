"""A head's cost is timed before the first request, and the timing leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.engine import LLM
from forerun.models.text.compatibility import tokenizer_hash
from tests.drafters.heads.random_heads import CONFIGS, write_head
from tests.engine.leaks import assert_nothing_is_held

MODELS = {"distilled", "pass"}  # draft models: their cost is learnt in use


@pytest.mark.parametrize("kind", sorted(set(CONFIGS) - MODELS))
def test_a_head_is_timed_when_the_engine_starts(plain: LLM, tmp_path: Path, kind: str) -> None:
    config = CONFIGS[kind](plain.model.config, tokenizer_hash(plain.tokenizer))
    path = write_head(tmp_path / kind, config)
    llm = plain.with_speculation({"method": kind, "model": str(path)})
    speculation = llm.engine.core.speculation
    assert speculation is not None
    assert speculation.controller is not None
    assert 0 < speculation.controller.costs.guess_costs[kind] < 100
    assert_nothing_is_held(llm)
