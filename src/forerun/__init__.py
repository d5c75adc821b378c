"""Forerun: speculative decoding that answers sooner and never changes what the model says."""

from typing import TYPE_CHECKING, Any

from forerun.errors import (
    DownloadFailed,
    ForerunError,
    InvalidDistribution,
    InvalidOption,
    InvalidProposal,
    InvalidTemplate,
    InvalidTokenizer,
    InvalidWeights,
    MissingExtra,
    PromptTooLong,
    TokenizerMismatch,
    UnknownModel,
    UnsupportedModel,
)
from forerun.types import (
    Acceptance,
    Draw,
    Origin,
    Proposal,
    SamplingParams,
    Span,
    Tree,
    Verdict,
)
from forerun.version import VERSION

if TYPE_CHECKING:
    from forerun.engine import (
        LLM,
        CompletionOutput,
        RequestOutput,
        SpeculativeConfig,
        StreamEvent,
    )

__version__ = VERSION

_FROM_ENGINE = {"LLM", "CompletionOutput", "RequestOutput", "SpeculativeConfig", "StreamEvent"}


def __getattr__(name: str) -> Any:
    """The engine is loaded when it is first asked for, so that `forerun --help` is quick."""
    if name in _FROM_ENGINE:
        from forerun import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'forerun' has no attribute {name!r}")


__all__ = [
    "LLM",
    "Acceptance",
    "CompletionOutput",
    "DownloadFailed",
    "Draw",
    "ForerunError",
    "InvalidDistribution",
    "InvalidOption",
    "InvalidProposal",
    "InvalidTemplate",
    "InvalidTokenizer",
    "InvalidWeights",
    "MissingExtra",
    "Origin",
    "PromptTooLong",
    "Proposal",
    "RequestOutput",
    "SamplingParams",
    "Span",
    "SpeculativeConfig",
    "StreamEvent",
    "TokenizerMismatch",
    "Tree",
    "UnknownModel",
    "UnsupportedModel",
    "Verdict",
    "__version__",
]
