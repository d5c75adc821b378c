"""Requests, the step, and `LLM` and `AsyncEngine`, which run them."""

from forerun.engine.async_engine import AsyncEngine
from forerun.engine.events import StreamEvent
from forerun.engine.llm import LLM
from forerun.engine.outputs import CompletionOutput, RequestOutput
from forerun.engine.request_options import RequestSpeculation
from forerun.engine.speculative_config import METHODS, SpeculativeConfig

__all__ = [
    "LLM",
    "METHODS",
    "AsyncEngine",
    "CompletionOutput",
    "RequestOutput",
    "RequestSpeculation",
    "SpeculativeConfig",
    "StreamEvent",
]
