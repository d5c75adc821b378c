"""Fixtures that the tests of the bench share."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.engine import LLM


@pytest.fixture(scope="package")
def llm(tiny_path: Path) -> LLM:
    return LLM(tiny_path, max_num_seqs=1, speculative_config=None, num_threads=1)
