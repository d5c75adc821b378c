"""Requests, the step that advances them, and `LLM` and `AsyncEngine`, which run the steps."""

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
    """Find `METHODS` where 0.1 had it, with a deprecation warning."""
    if name != "METHODS":
        raise AttributeError(f"module 'forerun.engine' has no attribute {name!r}")
    from forerun.speculation.methods import METHODS

    place = "forerun.speculation.methods"
    warnings.warn(f"forerun.engine.METHODS is in {place} now.", DeprecationWarning, stacklevel=2)
    return METHODS
