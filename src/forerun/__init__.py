"""Forerun: speculative decoding that answers sooner and never changes what the model says."""

from typing import TYPE_CHECKING, Any

from forerun.errors import (
    DiskFull,
    DownloadFailed,
    EngineClosed,
    EngineHung,
    EngineOverloaded,
    ForerunError,
    InvalidDistribution,
    InvalidGrammar,
    InvalidOption,
    InvalidProposal,
    InvalidTemplate,
    InvalidTokenizer,
    InvalidWeights,
    MissingExtra,
    PromptTooLong,
    RequestFailed,
    RequestTooLarge,
    TokenizerMismatch,
    UnknownModel,
    UnsupportedModel,
)
from forerun.version import VERSION

if TYPE_CHECKING:
    from forerun.engine import (
        LLM,
        AsyncEngine,
        CompletionOutput,
        EngineConfig,
        RequestOutput,
        RequestSpeculation,
        SpeculativeConfig,
        StreamEvent,
    )
    from forerun.types import (
        Acceptance,
        Draw,
        Origin,
        Proposal,
        SamplingParams,
        Span,
        StructuredOutputsParams,
        Tree,
        Verdict,
    )

__version__ = VERSION


def __getattr__(name: str) -> Any:
    """Import what needs numpy or the engine on first use, so that `forerun --help` is quick, and
    the command installs its signal handlers before it imports anything heavy."""
    if name in __all__:
        from forerun import types

        if hasattr(types, name):
            return getattr(types, name)
        from forerun import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'forerun' has no attribute {name!r}")


__all__ = [
    "LLM",
    "Acceptance",
    "AsyncEngine",
    "CompletionOutput",
    "DiskFull",
    "DownloadFailed",
    "Draw",
    "EngineClosed",
    "EngineConfig",
    "EngineHung",
    "EngineOverloaded",
    "ForerunError",
    "InvalidDistribution",
    "InvalidGrammar",
    "InvalidOption",
    "InvalidProposal",
    "InvalidTemplate",
    "InvalidTokenizer",
    "InvalidWeights",
    "MissingExtra",
    "Origin",
    "PromptTooLong",
    "Proposal",
    "RequestFailed",
    "RequestOutput",
    "RequestSpeculation",
    "RequestTooLarge",
    "SamplingParams",
    "Span",
    "SpeculativeConfig",
    "StreamEvent",
    "StructuredOutputsParams",
    "TokenizerMismatch",
    "Tree",
    "UnknownModel",
    "UnsupportedModel",
    "Verdict",
    "__version__",
]
