"""What tests of several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.models.pull import pull


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file; downloaded once, then kept in the cache directory."""
    return pull("smollm2-135m")
