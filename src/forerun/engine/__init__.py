"""Requests, the step, and `LLM` and `AsyncEngine`, which run them."""

import warnings
from typing import Any

from forerun.engine.api.async_engine import AsyncEngine
from forerun.engine.api.events import StreamEvent
from forerun.engine.api.llm import LLM
from forerun.engine.api.outputs import CompletionOutput, RequestOutput
from forerun.engine_config import EngineConfig
from forerun.speculation.config import SpeculativeConfig
from forerun.speculation.request import RequestSpeculation

__all__ = [
    "LLM",
    "AsyncEngine",
    "CompletionOutput",
    "EngineConfig",
    "RequestOutput",
    "RequestSpeculation",
    "SpeculativeConfig",
    "StreamEvent",
]


def __getattr__(name: str) -> Any:
    """A name of 0.1, once more."""
    if name != "METHODS":
        raise AttributeError(f"module 'forerun.engine' has no attribute {name!r}")
    from forerun.speculation.methods import METHODS

    place = "forerun.speculation.methods"
    warnings.warn(f"forerun.engine.METHODS is in {place} now.", DeprecationWarning, stacklevel=2)
    return METHODS
