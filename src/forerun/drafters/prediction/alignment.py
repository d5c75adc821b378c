"""Where an output stands in its prediction."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Final, NamedTuple

from forerun.drafters.prediction.spelling import Spell, Spelled, compare, respelled

_KEPT: Final = 0.8  # of a score, with every token
_FIRST_SCORE: Final = 3.0  # a caller's word counts for about four tokens that were right
# What a score elsewhere must be higher by, near and far: a text that repeats itself has gone on
# elsewhere in the same words, and one changed token must not lead there.
_STAYING, _STAYING_FAR = 0.6, 1.5
_NEAR: Final = 16  # tokens
_LASTING: Final = 2.0  # a place with less is forgotten where it does not go on
_MAX_PLACES: Final = 32  # places of one token that are looked at, the nearest; and that are kept
_LOOK_AHEAD: Final = 8  # tokens that may have been left out, for further branches

# The odds that the output follows the prediction at all: at first, by what a token that stands
# there or does not multiplies them, and their bounds.
_FIRST_ODDS: Final = 4.0
_HIT, _MISS = 4.0, 0.3
_LEAST_ODDS, _MOST_ODDS = 0.004, 25.0
_MANY_UNREAD: Final = 8  # tokens, after which any odds may be high
_ODDS_ELSEWHERE: Final = 0.5  # at most, of places other than the likeliest

# How often the next token comes if so, by how many before it did not stand there: 0, 1, or more;
# before this output says otherwise.
_FIRST_RATES: Final = (0.9, 0.6, 0.35)
_FIRST_TRIALS: Final = (10.0, 2.0, 2.0)  # tokens that these count for
_DECAY: Final = 0.02  # of older tokens with each new one


class Alignment:
    """Where an output stands in its prediction; a function of both, read token by token.

            prediction   a b c d e f g h
            output       a b X d                  place = 4

    A place's `score` counts the tokens before it that came, the latest most: each token leaves
    0.8 of it, and adds 1 if it is the one that stands there. So a changed token takes little from a
    place that was right for long, and another place must earn more than it did.

    Whether it follows the prediction at all is another question: `odds` rise with each token that
    stands before the place, and fall with each that does not, wherever the place has moved.

    `place` is where the output is expected to go on. Since the last token that was expected, it
    may have gone on anywhere from `_earliest` (what came is inserted) to `place` (what came
    replaces as much): a place there or near inherits most of the score.
    """

    def __init__(self, prediction: Sequence[int], spell: Spell | None = None) -> None:
        self.prediction = prediction
        self._spell = spell
        self._deviation: _Deviation | None = None  # while it may be but another spelling
        self.place = 0
        self.score = _FIRST_SCORE
        self.odds = _FIRST_ODDS
        self.num_missed = 0  # of the latest tokens, in a row
        self._earliest = 0
        self._num_read = 0
        self._others: dict[int, float] = {}  # place -> score, where the output may stand as well
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
        """Where it was none, all is as if it had not been, but for the place."""
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
        """Whether a guess may have such a chance once the whole output is read: not where it would
        have none even if all that is unread stood there. So a wrong prediction is seldom read."""
        num_unread = output_len - self._num_read
        if num_unread >= _MANY_UNREAD or self._deviation is not None:
            return True
        return _trust(min(_MOST_ODDS, self.odds * _HIT**num_unread)) >= least_chance

    def odds_at(self, place: int) -> float:
        return self.odds if place == self.place else min(self.odds, _ODDS_ELSEWHERE)

    def chance(self, odds: float, num_missed: int = 0) -> float:
        """That the next token of a place comes, which the output follows with these odds."""
        kind = min(num_missed, len(self._trials) - 1)
        return self._hits[kind] / self._trials[kind] * _trust(odds)

    def places(self) -> Iterator[int]:
        """Where the output may go on, the likeliest first."""
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
        if self._others or token in self._found:  # what is all wrong has few of them
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
        """The other places behind this token, with their scores."""
        others = self._gone_on(token)
        if is_hit:
            for idx in self._nearest(token):
                others.setdefault(idx + 1, 1.0)
        else:
            first, last = self._earliest + 1, self.place  # from one to the other it costs nothing
            for idx in self._nearest(token):
                place = idx + 1
                distance = place - last if place > last else first - place
                inherited = self.score + 1 - (_step_cost(distance) if distance > 0 else 0.0)
                if others.get(place, -math.inf) < inherited:
                    others[place] = inherited
        others.pop(self.place, None)
        return others

    def _move(self, places: Sequence[int]) -> bool:
        """To the one with the highest score, of equal ones to the nearest, if that is enough."""
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
        """The other places, behind this token; of those where it does not stand only good ones."""
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
        weight = self.odds / (1 + self.odds)  # where nothing is followed, nothing is to be learnt
        kind = min(self.num_missed, len(self._trials) - 1)
        self._hits[kind] += weight * (is_hit - _DECAY * self._hits[kind])
        self._trials[kind] += weight * (1 - _DECAY * self._trials[kind])
        return is_hit

    def _nearest(self, token: int) -> Sequence[int]:
        """Where this token stands, the nearest where it does so often."""
        found = self._found.get(token, ())
        if len(found) <= _MAX_PLACES:
            return found
        first = max(0, bisect_left(found, self.place) - _MAX_PLACES // 2)
        return found[first : first + _MAX_PLACES]

    def _distance(self, place: int) -> int:
        """From where the output may have gone on with the token before `place`."""
        return max(0, self._earliest + 1 - place, place - self.place)


class _Deviation(NamedTuple):
    """Where it began, what came since, and what was known before it."""

    start: int
    tokens: list[int]
    score: float
    odds: float
    rates: tuple[list[float], list[float]]


def _places_of(prediction: Sequence[int]) -> dict[int, list[int]]:
    """Token -> where it stands, ascending."""
    found: dict[int, list[int]] = {}
    for idx, token in enumerate(prediction):
        found.setdefault(token, []).append(idx)
    return found


def risen(odds: float) -> float:
    """Behind one more token that stands there."""
    return min(_MOST_ODDS, _HIT * odds)


def _trust(odds: float) -> float:
    """1 where the odds are as high as can be: the rates were counted there."""
    return odds / (1 + odds) * (1 + _MOST_ODDS) / _MOST_ODDS


def _step_cost(distance: int) -> float:
    """What a move takes of the score. One token is believed up to two away, as it may well stand
    further off by chance; two are believed at some dozens."""
    if distance <= 2:
        return 0.4 if distance else 0.0
    return 1.0 + distance / 128
