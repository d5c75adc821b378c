"""Requests, the step, and `LLM` and `AsyncEngine`, which run them."""

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
