"""Requests, the step, and `LLM` and `AsyncEngine`, which run them."""

from forerun.engine.async_engine import AsyncEngine
from forerun.engine.events import StreamEvent
from forerun.engine.llm import LLM
from forerun.engine.outputs import CompletionOutput, RequestOutput
from forerun.engine.request_options import RequestSpeculation
from forerun.speculation.config import SpeculativeConfig

__all__ = [
    "LLM",
    "AsyncEngine",
    "CompletionOutput",
    "RequestOutput",
    "RequestSpeculation",
    "SpeculativeConfig",
    "StreamEvent",
]
