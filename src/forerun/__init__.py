"""Forerun: speculative decoding that answers sooner and never changes what the model says."""

from forerun.errors import (
    ForerunError,
    InvalidDistribution,
    InvalidOption,
    InvalidProposal,
    MissingExtra,
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

__version__ = VERSION

__all__ = [
    "Acceptance",
    "Draw",
    "ForerunError",
    "InvalidDistribution",
    "InvalidOption",
    "InvalidProposal",
    "MissingExtra",
    "Origin",
    "Proposal",
    "SamplingParams",
    "Span",
    "Tree",
    "Verdict",
    "__version__",
]
