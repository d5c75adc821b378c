"""Where an output stands in its prediction."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Final, NamedTuple

from forerun.drafters.prediction.spelling import Spell, Spelled, compare, respelled

_KEPT: Final = 0.8  # share of a score that is kept with every token
_FIRST_SCORE: Final = 3.0  # at the start the prediction counts like about four right tokens
# By how much another place's score must exceed the score to move there, near and far. A text that
# repeats itself has the same words elsewhere too, and one changed token must not lead there.
_STAYING, _STAYING_FAR = 0.6, 1.5
_NEAR: Final = 16  # tokens
_LASTING: Final = 2.0  # places with a lower score are dropped at a miss
_MAX_PLACES: Final = 32  # other places kept, and the nearest occurrences considered of a token
_LOOK_AHEAD: Final = 8  # tokens that the output may have skipped, for further branches

# The odds that the output follows the prediction at all: their first value, the factors for a token
# that is the expected one or is not, and their bounds.
_FIRST_ODDS: Final = 4.0
_HIT, _MISS = 4.0, 0.3
_LEAST_ODDS, _MOST_ODDS = 0.004, 25.0
_MANY_UNREAD: Final = 8  # tokens, after which any odds may be high
_ODDS_ELSEWHERE: Final = 0.5  # the highest odds of places other than the likeliest

# How often the expected token comes while the output follows the prediction, by the number of
# misses just before it: 0, 1, or more. Priors, adjusted by the tokens of this output.
_FIRST_RATES: Final = (0.9, 0.6, 0.35)
_FIRST_TRIALS: Final = (10.0, 2.0, 2.0)  # tokens that the priors count for
_DECAY: Final = 0.02  # weight that older tokens lose with each new one


class Alignment:
    """The place in a prediction where the output is; a function of both, read token by token.

            prediction   a b c d e f g h
            output       a b X d                  place = 4

    A place's `score` counts the tokens before it that the output has, the latest most: each token
    of the output multiplies the score by 0.8, and adds 1 if it is the expected one. So a changed
    token costs a place that was right for long only little, and another place must earn more.

    Whether the output follows the prediction at all is a separate question: `odds` rise with each
    token that was expected and fall with each that was not, also while the place moves.

    `place` is where the output is expected to continue. Since the last expected token it may have
    continued anywhere from `_earliest` (the new tokens were inserted) to `place` (they replaced as
    many): a place in or near that range inherits most of the score.
    """

    def __init__(self, prediction: Sequence[int], spell: Spell | None = None) -> None:
        self.prediction = prediction
        self._spell = spell
        self._deviation: _Deviation | None = None  # while it may be only another spelling
        self.place = 0
        self.score = _FIRST_SCORE
        self.odds = _FIRST_ODDS
        self.num_missed = 0  # latest tokens, in a row, that were not expected
        self._earliest = 0
        self._num_read = 0
        self._others: dict[int, float] = {}  # place -> score: other places where it may be
        self._found = _places_of(prediction)
        self._hits = [r * n for r, n in zip(_FIRST_RATES, _FIRST_TRIALS, strict=True)]
        self._trials = list(_FIRST_TRIALS)

    def read(self, output: Sequence[int]) -> None:
        for idx in range(self._num_read, len(output)):
            if self._spell is not None and self.num_missed == 0 and self._deviation is None:
                self._begin_deviation(output[idx])
            self._read(output[idx])
            if self._spell is not None and self._deviation is not None:
                self._compare(self._deviation, output[idx], self._spell)
        self._num_read = len(output)

    def _begin_deviation(self, token: int) -> None:
        if self.place < len(self.prediction) and self.prediction[self.place] != token:
            rates = self._hits.copy(), self._trials.copy()
            self._deviation = _Deviation(self.place, [], self.score, self.odds, rates)

    def _compare(self, deviation: _Deviation, token: int, spell: Spell) -> None:
        """End the deviation once it is clear what it is.

        If it was only another spelling, all but the place is restored, and the spelling is expected
        from there on."""
        deviation.tokens.append(token)
        spelled, end = compare(self.prediction, deviation.start, deviation.tokens, spell)
        if spelled is Spelled.PART:
            return
        self._deviation = None
        if spelled is Spelled.OTHER:
            return
        self.place = self._earliest = end
        self.score, self.odds, self.num_missed = deviation.score, deviation.odds, 0
        self._hits, self._trials = deviation.rates
        word = self.prediction[deviation.start : end]
        starts = [start for start in self._found[word[0]] if start >= end]
        found = respelled(self.prediction, word, deviation.tokens, starts)
        if found is not None:
            self.prediction, self._found, self._others = found, _places_of(found), {}

    def may_reach(self, least_chance: float, output_len: int) -> bool:
        """Return whether a guess may have this chance once the whole output is read.

        False if it would not even if all unread tokens were expected, so that an output which left
        its prediction is seldom read."""
        num_unread = output_len - self._num_read
        if num_unread >= _MANY_UNREAD or self._deviation is not None:
            return True
        return _trust(min(_MOST_ODDS, self.odds * _HIT**num_unread)) >= least_chance

    def odds_at(self, place: int) -> float:
        return self.odds if place == self.place else min(self.odds, _ODDS_ELSEWHERE)

    def chance(self, odds: float, num_missed: int = 0) -> float:
        """Return the chance that the next token of a place comes, if it is followed with `odds`."""
        kind = min(num_missed, len(self._trials) - 1)
        return self._hits[kind] / self._trials[kind] * _trust(odds)

    def places(self) -> Iterator[int]:
        """Yield the places where the output may continue, the likeliest first; some come twice."""
        num, others = len(self.prediction), self._others
        if self.place < num:
            yield self.place
        yield from (p for p in sorted(others, key=lambda p: (-others[p], p)) if p < num)
        if self._earliest < num:
            yield self._earliest
        yield from range(self.place + 1, min(num, self.place + _LOOK_AHEAD))

    def _read(self, token: int) -> None:
        came = self._observe(token)
        if self.place < len(self.prediction):
            self.place += 1
        self.score = _KEPT * self.score + came
        if came:
            self._earliest = self.place
        if self._others or token in self._found:  # a wrong prediction has few of the tokens
            self._others = self._elsewhere(token, is_hit=came)
            enough = self.score + _STAYING
            better = [place for place, score in self._others.items() if score > enough]
            if better and self._move(better):
                came = self.prediction[self.place - 1] == token
            if len(self._others) > _MAX_PLACES:
                best = nlargest(_MAX_PLACES, self._others.items(), key=itemgetter(1))
                self._others = dict(best)
        if came:
            self.odds, self.num_missed = risen(self.odds), 0
        else:
            self.odds, self.num_missed = max(_LEAST_ODDS, _MISS * self.odds), self.num_missed + 1

    def _elsewhere(self, token: int, *, is_hit: bool) -> dict[int, float]:
        """Return the other places after this token, with their scores."""
        others = self._gone_on(token)
        if is_hit:
            for idx in self._nearest(token):
                others.setdefault(idx + 1, 1.0)
        else:
            first, last = self._earliest + 1, self.place  # a move within this range costs nothing
            for idx in self._nearest(token):
                place = idx + 1
                distance = place - last if place > last else first - place
                inherited = self.score + 1 - (_step_cost(distance) if distance > 0 else 0.0)
                if others.get(place, -math.inf) < inherited:
                    others[place] = inherited
        others.pop(self.place, None)
        return others

    def _move(self, places: Sequence[int]) -> bool:
        """Move to the place with the highest score, on a tie the nearest, if that is enough.

        Returns whether it moved."""
        others = self._others

        def lead(place: int) -> float:
            is_near = abs(place - self.place) <= _NEAR
            return others[place] - (_STAYING if is_near else _STAYING_FAR)

        best = min(places, key=lambda place: (-lead(place), self._distance(place), place))
        if lead(best) <= self.score:
            return False
        others[self.place] = self.score
        self.place = self._earliest = best
        self.score = others.pop(best)
        return True

    def _gone_on(self, token: int) -> dict[int, float]:
        """Return the other places advanced by this token; at a miss, only those that last."""
        found, prediction, num = dict[int, float](), self.prediction, len(self.prediction)
        for place, score in self._others.items():
            if place < num:
                is_hit = prediction[place] == token
                if is_hit or score >= _LASTING:
                    found[place + 1] = _KEPT * score + is_hit
        return found

    def _observe(self, token: int) -> bool:
        if self.place >= len(self.prediction):
            return False
        is_hit = self.prediction[self.place] == token
        weight = self.odds / (1 + self.odds)  # rates are learnt only while the output follows
        kind = min(self.num_missed, len(self._trials) - 1)
        self._hits[kind] += weight * (is_hit - _DECAY * self._hits[kind])
        self._trials[kind] += weight * (1 - _DECAY * self._trials[kind])
        return is_hit

    def _nearest(self, token: int) -> Sequence[int]:
        """Return where this token occurs in the prediction; of many places the nearest."""
        found = self._found.get(token, ())
        if len(found) <= _MAX_PLACES:
            return found
        first = max(0, bisect_left(found, self.place) - _MAX_PLACES // 2)
        return found[first : first + _MAX_PLACES]

    def _distance(self, place: int) -> int:
        """Return the distance of `place` from the range where the output may have continued."""
        return max(0, self._earliest + 1 - place, place - self.place)


class _Deviation(NamedTuple):
    """Where a deviation began, the tokens since, and the state before it."""

    start: int
    tokens: list[int]
    score: float
    odds: float
    rates: tuple[list[float], list[float]]


def _places_of(prediction: Sequence[int]) -> dict[int, list[int]]:
    """Return, for each token, its places in the prediction, ascending."""
    found: dict[int, list[int]] = {}
    for idx, token in enumerate(prediction):
        found.setdefault(token, []).append(idx)
    return found


def risen(odds: float) -> float:
    """Return the odds after one more expected token."""
    return min(_MOST_ODDS, _HIT * odds)


def _trust(odds: float) -> float:
    """Return the probability of `odds`, scaled to 1 at the highest: rates were counted there."""
    return odds / (1 + odds) * (1 + _MOST_ODDS) / _MOST_ODDS


def _step_cost(distance: int) -> float:
    """Return what a move takes from the score. One matching token is enough up to two places away,
    since further away it may be there by chance; two are enough for some dozens of places."""
    if distance <= 2:
        return 0.4 if distance else 0.0
    return 1.0 + distance / 128
