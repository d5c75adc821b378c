"""Drafters: everything that guesses tokens for the target. One protocol, one file each."""

from typing import Final

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
from forerun.drafters.grammar_walk import GRAMMAR, GrammarWalk
from forerun.drafters.ngram_tables import NgramTables
from forerun.drafters.phrases import Phrases
from forerun.drafters.prediction import PREDICTION, GivenPrediction
from forerun.drafters.prompt_lookup import PromptLookup
from forerun.drafters.random_tokens import RandomTokens
from forerun.drafters.suffix import SuffixLookup

OWN: Final = (PREDICTION, GRAMMAR)  # drafters that guess from an option of the request

__all__ = [
    "GRAMMAR",
    "NOBODY",
    "OWN",
    "PREDICTION",
    "Budget",
    "CachedDrafter",
    "DraftModel",
    "Drafter",
    "GivenPrediction",
    "GrammarWalk",
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
