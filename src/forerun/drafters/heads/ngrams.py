"""Counts of what followed up to four tokens in texts that the target wrote: a head without a pass.

A table for each order holds one row for each context that was seen: a hash of its tokens, the
token that followed most often, and the chance that it does, in 255ths. A guess is the follower of
the longest context that is known: in the request's own text first, then in the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.drafters.heads.folder import TABLE, HeadFolder
from forerun.errors import InvalidWeights
from forerun.types import ROOT, Proposal, ProposalBuilder

ORDERS: Final = (4, 3, 2, 1)  # tokens of a context, the longest first
ROW: Final = np.dtype([("context", "<u4"), ("token", "<u4"), ("chance", "u1")])
# Contexts in the request's own text, and how often what followed them last came again: measured
# over 30,000 tokens that SmolLM2 wrote, but for contexts of one token, which are asked last.
_OWN: Final = {8: 0.95, 5: 0.8, 3: 0.65, 2: 0.5, 1: 0.2}
_TRUST: Final = 1.5  # shares of a table came true there to this power
_MIN_CHANCE: Final = 0.05  # of a guess and all before it, whatever a budget asks for
_MAX_FOLLOWERS: Final = 4  # that are kept of a context
_MAX_OWN: Final = 1 << 14  # tokens of a request's text that are looked at

Tables = dict[int, npt.NDArray[Any]]
Guess = tuple[int, float]  # a token, and its chance


class Ngrams(OneByOne["_OwnText"]):
    """Asking it costs a few searches. In a tree, siblings are what else followed."""

    picks = True

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables

    def _remember(self, request: RequestView) -> _OwnText:  # noqa: ARG002
        return _OwnText()

    def _guess(self, request: RequestView, own: _OwnText, budget: Budget) -> Proposal:
        own.extend(request.tokens)
        builder = ProposalBuilder()
        tail = list(request.tokens[-max(_OWN) :])
        left = 1.0  # the chance that none of the siblings before is right
        openings = dict[int, float]()
        for token, chance in self._followers(own, tail):
            if len(openings) == budget.num_branches or not budget.depth:
                break
            if token not in openings:
                openings[token] = left * chance
                left *= 1 - chance
        for token, chance in openings.items():
            self._add_branch(builder, own, tail, (token, chance), budget)
        return builder.build()

    def _add_branch(
        self,
        builder: ProposalBuilder,
        own: _OwnText,
        tail: list[int],
        opening: Guess,
        budget: Budget,
    ) -> None:
        found: Guess | None = opening
        node, chance_of_all, path = ROOT, 1.0, list(tail)
        for _ in range(budget.depth):
            if found is None:
                break
            token, chance = found
            chance_of_all *= chance
            if chance_of_all < max(_MIN_CHANCE, budget.least_chance):
                break
            node = builder.add(node, token, chance=chance)
            path.append(token)
            found = next(self._followers(own, path), None)

    def _followers(self, own: _OwnText, tail: Sequence[int]) -> Iterator[Guess]:
        """The best first; a token may come more than once."""
        for order, chance in _OWN.items():
            if order == 1:  # by itself the last token says less than the tables
                yield from self._known(tail)
            yield from ((token, chance) for token in own.after(tail, order))

    def _known(self, tail: Sequence[int]) -> Iterator[Guess]:
        for order in ORDERS:
            table = self._tables[order]
            if len(tail) < order:
                continue
            context = int(_hashes(np.array(tail[-order:]), order)[0])
            idx = int(np.searchsorted(table["context"], context))
            if idx < len(table) and table["context"][idx] == context:
                yield int(table["token"][idx]), float(table["chance"][idx]) / 255


class _OwnText:
    """What followed contexts of a few lengths, the latest first."""

    def __init__(self) -> None:
        self._num_seen = 0
        self._after: dict[tuple[int, ...], list[int]] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        for idx in range(max(self._num_seen, len(tokens) - _MAX_OWN), len(tokens)):
            for order in _OWN:
                if idx >= order:
                    found = self._after.setdefault(tuple(tokens[idx - order : idx]), [])
                    if tokens[idx] in found:
                        found.remove(tokens[idx])
                    found.insert(0, tokens[idx])
                    del found[_MAX_FOLLOWERS:]
        self._num_seen = len(tokens)

    def after(self, tail: Sequence[int], order: int) -> Sequence[int]:
        return self._after.get(tuple(tail[-order:]), ()) if len(tail) >= order else ()


def load_tables(folder: HeadFolder) -> Tables:
    """Checked: contexts ascend, tokens are the target's."""
    tables = {order: folder.rows(f"{TABLE}{order}", ROW) for order in ORDERS}
    for order, table in tables.items():
        contexts, tokens = table["context"].astype(np.int64), table["token"]
        is_sound = len(table) and (np.diff(contexts) > 0).all()
        if not is_sound or tokens.max() >= folder.config.target_vocab_size:
            raise InvalidWeights(
                f"{folder.path}: the table of order {order} is damaged; copy again."
            )
    return tables


def counted(texts: Sequence[npt.NDArray[np.int64]]) -> Tables:
    """Tables of all contexts of some texts; those of 3 tokens and more that came twice at least."""
    return {order: _counted(texts, order, 2 if order > 2 else 1) for order in ORDERS}


def _counted(
    texts: Sequence[npt.NDArray[np.int64]], order: int, min_count: int
) -> npt.NDArray[Any]:
    texts = [text for text in texts if len(text) > order]
    contexts = np.concatenate([_hashes(text, order)[:-1] for text in texts]).astype(np.uint64)
    followers = np.concatenate([text[order:] for text in texts]).astype(np.uint64)
    pairs, counts = np.unique(contexts << np.uint64(32) | followers, return_counts=True)
    contexts, first = np.unique(pairs >> np.uint64(32), return_index=True)
    totals = np.add.reduceat(counts, first)
    owner = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(pairs))))
    best = np.lexsort((-counts, owner))[first]  # the most frequent follower of each
    found = np.zeros(len(first), ROW)
    found["context"], found["token"] = contexts, pairs[best] & np.uint64(0xFFFFFFFF)
    found["chance"] = np.round(255 * (counts[best] / (totals + 1)) ** _TRUST)
    return found[totals >= min_count]


def _hashes(tokens: npt.NDArray[np.int64], order: int) -> npt.NDArray[np.uint64]:
    """Of every run of `order` tokens, 32 bits."""
    num = len(tokens) - order + 1
    found = np.full(num, order, np.uint64)
    for idx in range(order):
        found = (found ^ tokens[idx : num + idx].astype(np.uint64)) * np.uint64(0x9E3779B1)
        found = (found ^ (found >> np.uint64(15))) & np.uint64(0xFFFFFFFF)
    return found
