"""Count a book of phrases from texts: of all contexts that occur, those that help most."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.drafters.phrases.book import Owner, PhraseBook
from forerun.drafters.phrases.hashing import ORDER, U64, many_hashes

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NUM_KEPT: Final = 300_000  # contexts: four bytes each
_LEAST_SEEN: Final = 2  # occurrences that a context must have


class _Counted(NamedTuple):
    """Contexts of one length, by ascending hash."""

    hashes: U64
    tokens: Ints  # the most frequent follower
    shares: Floats  # its count / (num_seen + 1): rare contexts count for less
    num_seen: Ints
    shorter: U64  # the hash of the same context without its first token


def count_phrases(
    tokens: Ints, firsts: Ints, answers: Ints, owner: Owner, num_kept: int = NUM_KEPT
) -> PhraseBook:
    """Count the book of some texts, which are concatenated in `tokens`.

    `firsts` are the texts' starts, `answers` the offsets of the answers in them. Only tokens of
    answers are counted; their contexts may reach into the prompt."""
    lengths = np.diff(np.append(firsts, len(tokens)))
    places = np.arange(len(tokens)) - np.repeat(firsts, lengths)
    is_answer = places >= np.repeat(answers, lengths)
    counted = [
        _counted(tokens, np.flatnonzero(is_answer & (places >= order)), order)
        for order in range(1, ORDER + 1)
    ]
    worth = np.concatenate([_worth(*both) for both in zip(counted, [None, *counted], strict=False)])
    kept = np.argsort(-worth, kind="stable")[: min(num_kept, int((worth > 0).sum()))]
    hashes, best, shares = (
        np.concatenate([each[idx] for each in counted])[kept] for idx in range(3)
    )
    return PhraseBook.of(owner, hashes, best, shares)


def _counted(tokens: Ints, ends: Ints, order: int) -> _Counted:
    """Count the contexts of `order` tokens; `ends` are the indices of their followers."""
    hashes = many_hashes(tokens, ends, order)
    sorting = np.lexsort((tokens[ends], hashes))
    ends, hashes = ends[sorting], hashes[sorting]
    followers = tokens[ends]
    is_new = np.append(True, hashes[1:] != hashes[:-1])
    pairs = np.flatnonzero(is_new | np.append(True, followers[1:] != followers[:-1]))
    num_pair = np.diff(np.append(pairs, len(ends)))
    contexts = np.flatnonzero(is_new[pairs])
    num_seen, most = np.add.reduceat(num_pair, contexts), np.maximum.reduceat(num_pair, contexts)
    owners = np.repeat(np.arange(len(contexts)), np.diff(np.append(contexts, len(pairs))))
    best = np.flatnonzero(num_pair == most[owners])
    best = best[np.unique(owners[best], return_index=True)[1]]  # on a tie the lowest id
    kept = num_seen >= _LEAST_SEEN
    rows, met = pairs[best][kept], num_seen[kept]
    shorter = many_hashes(tokens, ends[rows], order - 1)
    return _Counted(hashes[rows], followers[rows], most[kept] / (met + 1), met, shorter)


def _worth(counted: _Counted, shorter: _Counted | None) -> Floats:
    """Return how many guesses each context gains over the next shorter one alone.

    If they predict different tokens, the gain is the difference of their hits in the context. If
    they predict the same token, half of the change of its share counts."""
    seen, shares = counted.num_seen, counted.shares
    if shorter is None or not len(shorter.hashes):
        return seen * shares
    at = np.minimum(np.searchsorted(shorter.hashes, counted.shorter), len(shorter.hashes) - 1)
    is_known = shorter.hashes[at] == counted.shorter
    before = np.where(is_known, shorter.shares[at], 0.0)
    is_same = is_known & (shorter.tokens[at] == counted.tokens)
    other = shares - np.minimum(before, 1 - shares)
    return np.asarray(seen * np.where(is_same, 0.5 * np.abs(shares - before), other))
