"""Fixtures that the tests of the engine share."""

from __future__ import annotations

import pytest

from forerun.engine import LLM
from tests.engine.test_bits import PROMPTS, SAMPLING, PlainTokens, params, tokens


@pytest.fixture(scope="session")
def plain_tokens(plain: LLM) -> PlainTokens:
    """The tokens without speculation, which every configuration must reproduce."""
    return {(p, s): tokens(plain, p, params(s)) for p in PROMPTS for s in SAMPLING}
