"""Requests, the step, and `LLM`, which runs them."""

from forerun.engine.llm import LLM
from forerun.engine.outputs import CompletionOutput, RequestOutput, StreamEvent
from forerun.engine.speculative_config import METHODS, SpeculativeConfig

__all__ = [
    "LLM",
    "METHODS",
    "CompletionOutput",
    "RequestOutput",
    "SpeculativeConfig",
    "StreamEvent",
]
