"""Books of small texts, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.drafters.phrases import PhraseBook, count_phrases
from forerun.drafters.phrases.book import Owner

OWNER = Owner("a fingerprint", "a tokenizer", 500)


def book_of(*texts: Sequence[int], num_kept: int = 1000, owner: Owner = OWNER) -> PhraseBook:
    """Count a book of texts that are answers from their first token on."""
    lengths = np.array([len(text) for text in texts])
    firsts = np.cumsum(lengths) - lengths
    tokens = np.concatenate([np.array(text, np.int64) for text in texts])
    return count_phrases(tokens, firsts, np.zeros_like(lengths), owner, num_kept)
