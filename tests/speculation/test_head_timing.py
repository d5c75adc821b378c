"""What a head costs is known before the first request, and nothing is left of finding out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun.engine import LLM
from forerun.models.text.compatibility import tokenizer_hash
from tests.drafters.random_heads import (
    block_config,
    eagle3_config,
    medusa_config,
    write_block,
    write_eagle3,
    write_medusa,
)
from tests.engine.leaks import assert_nothing_is_held

HEADS: dict[str, Any] = {
    "block": (write_block, block_config),
    "eagle3": (write_eagle3, eagle3_config),
    "medusa": (write_medusa, medusa_config),
}


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_is_timed_when_the_engine_starts(plain: LLM, tmp_path: Path, kind: str) -> None:
    write, config_of = HEADS[kind]
    path = write(tmp_path / kind, config_of(plain.model.config, tokenizer_hash(plain.tokenizer)))
    llm = plain.with_speculation({"method": kind, "model": str(path)})
    speculation = llm.engine.core.speculation
    assert speculation is not None
    assert speculation.controller is not None
    assert 0 < speculation.controller.costs.guess_costs[kind] < 100
    assert_nothing_is_held(llm)
