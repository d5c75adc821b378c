"""Whatever guesses for the target. One file each, one protocol."""

from forerun.drafters.base import (
    NOBODY,
    Budget,
    CachedDrafter,
    Drafter,
    HintingDrafter,
    RequestView,
    TappedDrafter,
    Target,
)
from forerun.drafters.combined import Hybrid, Merge
from forerun.drafters.draft_model import DraftModel
from forerun.drafters.ngram_tables import NgramTables
from forerun.drafters.phrases import Phrases
from forerun.drafters.prediction import GivenPrediction
from forerun.drafters.prompt_lookup import PromptLookup
from forerun.drafters.random_tokens import RandomTokens
from forerun.drafters.suffix import SuffixLookup

__all__ = [
    "NOBODY",
    "Budget",
    "CachedDrafter",
    "DraftModel",
    "Drafter",
    "GivenPrediction",
    "HintingDrafter",
    "Hybrid",
    "Merge",
    "NgramTables",
    "Phrases",
    "PromptLookup",
    "RandomTokens",
    "RequestView",
    "SuffixLookup",
    "TappedDrafter",
    "Target",
]
