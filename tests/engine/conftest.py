from __future__ import annotations

from pathlib import Path

import pytest

from forerun.engine import LLM


@pytest.fixture(scope="session")
def plain(tiny_path: Path) -> LLM:
    """The small target without speculation."""
    return LLM(tiny_path, speculative_config=None)
