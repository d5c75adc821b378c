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
    """`METHODS`, under its old name; the next version does not have it."""
    if name != "METHODS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from forerun.speculation.methods import METHODS

    warnings.warn(
        "forerun.engine.METHODS is forerun.speculation.methods.METHODS; import it from there.",
        DeprecationWarning,
        stacklevel=2,
    )
    return METHODS
