"""Phrases that a target often writes, counted in advance: guessing is a table lookup."""

from forerun.drafters.phrases.book import PhraseBook, shipped_book
from forerun.drafters.phrases.counting import count_phrases
from forerun.drafters.phrases.phrases import Phrases

__all__ = ["PhraseBook", "Phrases", "count_phrases", "shipped_book"]
