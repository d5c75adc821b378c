"""A suffix automaton that grows token by token and counts which tokens followed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

_NONE: Final = -1
_ROOT: Final = 0


class Match(NamedTuple):
    """A string that occurs in the text: its state, and its length."""

    state: int
    length: int


NO_MATCH: Final = Match(_ROOT, 0)


class SuffixAutomaton:
    """All strings of a text: a state stands for those that end at the same places, an edge for a
    token that followed them.

    Longer contexts are cut to their last `max_match` tokens. For contexts up to that length, an
    edge knows how often it was taken and when last, and a state knows its best edge: the most
    frequent, on a tie the most recent. A token costs a walk over the suffixes of the text that
    belong to different states: a handful in practice, never more than `max_match`.

    A text of n tokens has at most 2n states and 3n edges.
    """

    def __init__(self, max_match: int) -> None:
        self._max_match = max_match
        self._lengths = [0]  # length of the longest string, by state
        self._links = [_NONE]  # state of its longest suffix that occurs elsewhere too, by state
        self._best = [_NONE]  # the token most often seen next, by state
        self._edges: list[dict[int, int]] = [{}]  # token -> edge, by state
        self._targets = list[int]()  # by edge
        self._counts = list[int]()
        self._recency = list[int]()  # the text's length when the edge was last taken
        self._last = _ROOT  # the state of the whole text
        # The match of the text's last `max_match` tokens. A split while a token is appended may
        # move it one link up; both states have the same edge for the token, and the longer state
        # is never asked for it.
        self._tail = NO_MATCH

    def __len__(self) -> int:
        return self._lengths[self._last]

    @property
    def num_edges(self) -> int:
        return len(self._targets)

    def append(self, token: int) -> None:
        self.extend((token,))

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens, all in one loop: prompts are long, and calls in Python are slow."""
        lengths, links, best_of, edges_of = self._lengths, self._links, self._best, self._edges
        targets, counts, recency = self._targets, self._counts, self._recency
        for token in tokens:
            state, end = self._last, len(lengths)
            now = lengths[state] + 1
            lengths.append(now)
            links.append(_NONE)
            best_of.append(_NONE)
            edges_of.append({})
            while state != _NONE and token not in (edges := edges_of[state]):
                edges[token] = len(targets)
                targets.append(end)
                counts.append(0)
                recency.append(0)
                state = links[state]
            links[end] = _ROOT if state == _NONE else self._suffix_after(state, token)
            self._last, state = end, self._tail.state
            while state != _ROOT:  # `token` followed every suffix of the text before it
                edges, best = edges_of[state], best_of[state]
                edge = edges[token]
                counts[edge] = count = counts[edge] + 1
                recency[edge] = now
                if best != token and (best == _NONE or count >= counts[edges[best]]):
                    best_of[state] = token
                state = links[state]
            self._tail = self.after(self._tail, token)

    def repeated_tail(self) -> Match:
        """Return the longest end of the text, up to `max_match` tokens, that occurred before."""
        if self._tail.state != self._last:
            return self._tail
        link = self._links[self._last]
        return Match(link, self._lengths[link]) if link != _NONE else NO_MATCH

    def find_tail(self, tokens: Iterable[int]) -> Match:
        """Return the longest end of `tokens` that occurs in the text."""
        match = NO_MATCH
        for token in tokens:
            while match.state != _ROOT and token not in self._edges[match.state]:
                match = self.shorter(match)
            if token in self._edges[match.state]:
                match = self.after(match, token)
        return match

    def after(self, match: Match, token: int) -> Match:
        """Return the match with `token` appended, which must have followed it before."""
        state, length = self._targets[self._edges[match.state][token]], match.length + 1
        if length > self._max_match:
            length = self._max_match
            link = self._links[state]
            if self._lengths[link] == length:
                state = link
        return Match(state, length)

    def continued(self, match: Match) -> Match:
        """Return the match, or its longest suffix that a token followed.

        No token follows a match that occurs only at the end of the text. A text that repeats itself
        thus goes on from the earlier occurrence.
        """
        while match.length and not self._edges[match.state]:
            match = self.shorter(match)
        return match

    def shorter(self, match: Match) -> Match:
        """Return the longest suffix of a match that occurs at more places than the match."""
        link = self._links[match.state]
        return Match(link, self._lengths[link])

    def best(self, match: Match) -> int:
        """Return the token that followed most often, on a tie most recently."""
        return self._best[match.state]

    def is_unanimous(self, match: Match) -> bool:
        """Return whether the same token followed every time."""
        return len(self._edges[match.state]) == 1

    def followers(self, match: Match) -> list[int]:
        """Return every token that followed: most frequent first, on a tie most recent."""
        edges = self._edges[match.state]
        if len(edges) == 1:
            return list(edges)
        return sorted(edges, key=lambda token: self._rank(edges[token]), reverse=True)

    def _rank(self, edge: int) -> tuple[int, int]:
        return self._counts[edge], self._recency[edge]

    def _suffix_after(self, state: int, token: int) -> int:
        """Return the state whose longest string is that of `state` with `token` appended."""
        target = self._targets[self._edges[state][token]]
        length = self._lengths[state] + 1
        if self._lengths[target] == length:
            return target
        return self._split(target, length, state, token)

    def _split(self, old: int, length: int, state: int, token: int) -> int:
        """Move the strings of `old` up to `length`, which end at one more place, to a new state."""
        new = self._new_state(length, self._copied_edges(old))
        self._links[new], self._links[old] = self._links[old], new
        self._best[new] = self._best[old]
        while state != _NONE and self._targets[self._edges[state][token]] == old:
            self._targets[self._edges[state][token]] = new
            state = self._links[state]
        return new

    def _copied_edges(self, state: int) -> dict[int, int]:
        return {
            token: self._new_edge(self._targets[edge], *self._rank(edge))
            for token, edge in self._edges[state].items()
        }

    def _new_state(self, length: int, edges: dict[int, int]) -> int:
        self._lengths.append(length)
        self._links.append(_NONE)
        self._best.append(_NONE)
        self._edges.append(edges)
        return len(self._edges) - 1

    def _new_edge(self, target: int, count: int = 0, recency: int = 0) -> int:
        self._targets.append(target)
        self._counts.append(count)
        self._recency.append(recency)
        return len(self._targets) - 1
