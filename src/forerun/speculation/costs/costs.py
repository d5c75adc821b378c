"""What a round costs here and now, in seconds that others measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import NO_KEYS, Keys, PassCost, clipped
from forerun.speculation.step_times import StepTimes

# A drafter nobody measured is taken to cost this share of a plain pass per level.
_UNMEASURED: Final = 0.1
_CHEAP: Final = 0.05  # of a plain pass: what asking may cost and still be done at every look
_READING: Final = 0.05  # of the time that an answer may take
_NUM_NOTED: Final = 8  # plain rounds that are learnt from together, at most
_OFTEN: Final = 32  # rounds of a size, or answers of a drafter
_ONE_IN: Final = 4  # of what was met often is learnt from, and of what is not settled
_SETTLING: Final = 12  # rounds behind a prompt
_FEW: Final = 8  # rounds of a size
_LIKE: Final = 32  # tokens of context
_FORESEEN: Final = 16  # guesses, at least, whose rounds are reckoned at once
_EXCESS_RATE: Final = 1 / 16  # how much the latest round with guesses says of the next
_EXCESS_SURPRISE: Final = 0.1  # of a round: slow moments are to say little, and are all on one side
_WHOLE_RATE: Final = 1 / 16
_HOPE_RATE: Final = 1 / 1024  # with every plain round, of what was slower than when it was tried
_LEAST_HOPE: Final = _HOPE_RATE / 64
_AHEAD_RATE: Final = 1 / 16
_MOST_AHEAD: Final = 2  # times what the host does in a plain round
_LEAST_APART: Final = 4e-3  # seconds of a pass: see `may_draw_apart`
_PLAIN: Final = ""  # no drafter has this name


class Costs:
    """The target's pass, each drafter's answer, and the rest of a round: verdicts, commit.

    `context_len` is what a row of the present round attends to, on average; `is_alone`: it is of
    one request, and reads no prompt beside it; `is_free`: nothing but noise decides what comes. A
    busy machine slows all of them alike, so drafters and the rest are kept in seconds at
    calibration and read through the pass's speed. What the choice itself took is spent when it is
    made, so it belongs to no round that it could choose.
    """

    def __init__(self, target: PassCost, drafters: dict[str, DraftCost] | None = None) -> None:
        self.target = target
        self.context_len = 0.0
        self.is_alone = self.is_free = True
        self._drafters = drafters or {}
        self._rest = DraftCost(0.0, 0.0)
        self._excess = 0.0  # see `round_seconds`
        self._ahead = 0.0  # the usual head start of a plain round behind another
        self._lapse = 1.0  # how often one behind a round with guesses is plain
        self._has_guessed = self._was_plain = False  # the last round
        self._num_rounds = _SETTLING  # behind the last prompt
        self._whole: dict[str, float] = {}  # see `expect_whole`
        self._tried: dict[str, float] = {}  # the same before any request
        self._hopes: dict[str, float] = {}  # with every plain round: see `_hope`
        self._hoped: set[str] = set()  # since their last round
        self._last_whole: str | None = None  # whose round was the last, if it was such a one
        # What was asked for last, while nothing new is learnt.
        self._least_price: tuple[tuple[int, ...], float] | None = None
        self._rounds: tuple[tuple[int, ...], list[float]] | None = None
        self._met: Counter[object] = Counter()  # sizes of rounds with guesses, and of answers
        # Plain rounds: the pass beside what is known of it, and in seconds; rest, context.
        self._noted: list[tuple[float, float, float, float]] = []
        self._num_noted = 0  # requests of each

    def round_seconds(
        self, num_requests: int, num_prompt_tokens: int, max_guesses: int
    ) -> list[float]:
        """Of rounds with 0 … `max_guesses` guesses, drafting aside."""
        like = num_requests, num_prompt_tokens, self._context, self._is_early
        if self._rounds is None or self._rounds[0] != like or len(self._rounds[1]) <= max_guesses:
            most = max(_FORESEEN, max_guesses)
            self._rounds = like, self._round_seconds(num_requests, num_prompt_tokens, most)
        return self._rounds[1][: max_guesses + 1]

    def _round_seconds(
        self, num_requests: int, num_prompt_tokens: int, max_guesses: int
    ) -> list[float]:
        """Guesses cost a round more than their pass says: code that runs seldom is cold, and on a
        GPU a pass for nobody may be under way. That excess is learnt from them. A plain round has a
        head start, which it loses behind guesses."""
        passes = self.target.seconds_from(num_requests + num_prompt_tokens, max_guesses + 1)
        speed = self.target.speed
        plain = speed * self._rest.seconds(num_requests, 0) + self._context_seconds(num_requests, 0)
        guess = speed * self._rest.per_level + self._context_seconds(0, 1)
        rounds = [seconds + plain + guess * num for num, seconds in enumerate(passes)]
        excess = speed * max(0.0, self._excess) + self._lost
        rounds[0] -= min(speed * self._ahead, rounds[0] / 2)
        if self._is_early and _PLAIN in self._whole:
            rounds[0] = self._plain_whole()
        return [rounds[0], *(seconds + excess for seconds in rounds[1:])]

    @property
    def _context(self) -> int:
        """Contexts that make no difference to speak of have one number."""
        return int(self.context_len) // _LIKE

    def plain_seconds(self, num_requests: int) -> float:
        """Of a pass without guesses."""
        return self.target.seconds(num_requests) + self._context_seconds(num_requests, 0)

    def _context_seconds(self, num_requests: int, num_guesses: int) -> float:
        """What these rows take beyond what they would on an empty context."""
        return self.target.context_seconds(self._keys(num_requests, num_guesses))

    def _keys(self, num_requests: int, num_guesses: int) -> Keys:
        return self.context_len * num_requests, self.context_len * num_guesses

    def least_price(self, num_requests: int, num_prompt_tokens: int) -> float:
        """What one more guess adds to a round where it adds least, in tokens that a plain round
        brings in that time. A guess that brings less is never worth it."""
        like = num_requests, num_prompt_tokens, self._context
        if self._least_price is None or self._least_price[0] != like:
            speed, rest = self.target.speed, self._rest
            plain = self.target.seconds(num_requests + num_prompt_tokens)
            plain += speed * rest.seconds(num_requests, 0) + self._context_seconds(num_requests, 0)
            guess = self.target.least_slope + speed * rest.per_level + self._context_seconds(0, 1)
            price = num_requests * guess / plain
            self._least_price = like, price
        return self._least_price[1]

    def expect_waste(self) -> None:
        """Where a plain pass begins early, guesses come when one is under way for nobody."""
        self._excess, self._rounds = self.target.seconds(1), None

    def expect_excess(self, drafter: str, depth: int, seconds: float) -> None:
        """A round with these guesses takes so much more than a plain one: what its parts leave."""
        parts = self.target.seconds(1 + depth) - self.target.seconds(1)
        parts += self.draft_seconds(drafter, 1, [1] * depth)
        self._excess, self._rounds = max(0.0, seconds - parts) / self.target.speed, None

    def expect_whole(self, drafter: str, seconds: float, plain: float) -> None:
        """One request's rounds with these guesses take so long, however many there are, and `plain`
        ones so long: the device begins them by itself, and what their parts take one after the
        other says nothing."""
        self._whole |= {drafter: seconds, _PLAIN: plain}
        self._tried, self._rounds = dict(self._whole), None

    def _plain_whole(self) -> float:
        """It has slowed down by no more than one with guesses: where it seems so, the latest plain
        ones were slow for reasons of their own, and there may be none for long."""
        slowdown = max(self._whole[name] / self._tried[name] for name in self._tried if name)
        return min(self._whole[_PLAIN], self._tried[_PLAIN] * max(1.0, slowdown))

    @property
    def knows_whole(self) -> bool:
        """Whether some rounds begin early: a plain one behind them is slow for that alone."""
        return bool(self._whole)

    def is_whole(self, drafter: str | None) -> bool:
        """Whether a round of the present batch with its guesses is known as a whole."""
        return self._is_early and drafter in self._whole

    @property
    def _is_early(self) -> bool:
        """Whether the present round is like those that were timed whole."""
        return self.is_alone and self.is_free

    def may_draw_apart(self, drafter: str) -> bool:
        """Whether a drafter whose rounds are known as a whole is of use where more than noise
        decides. No such round begins early, and the host draws its guesses: that takes as long as
        several passes of a small model."""
        return drafter not in self._whole or self.plain_seconds(1) > _LEAST_APART

    def _observe_whole(self, times: StepTimes) -> bool:
        """Whether a round's guesses are known as a whole, so that nothing is to be learnt of its
        parts. A round that is not behind another such one was not begun early, and its drafter may
        have read a prompt first."""
        last, self._last_whole = self._last_whole, None
        if not self._whole or not self.is_free or times.num_tokens != 1 + times.num_guesses:
            return False
        name, num_told = _PLAIN, 1
        if times.num_guesses:
            answers = [answer for answer in times.drafts if answer[0] in self._whole]
            if not answers:
                return False
            ((name, num_told, *_),) = answers
        self._last_whole = name
        if name == _PLAIN:
            self._hope()
        if num_told and last == name:
            seconds = sum((answer[-1] for answer in times.drafts), times.pass_seconds)
            surprise = clipped(math.log((seconds + times.rest_seconds) / self._whole[name]))
            self._judge_hope(name, was_vain=surprise > 0)
            self._whole[name] *= math.exp(_WHOLE_RATE * surprise)
            self._rounds = None
        return times.num_guesses > 0

    def _hope(self) -> None:
        """Rounds that nobody asks for any more, since they were slow, are asked for again once."""
        for name, tried in self._tried.items():
            if name != _PLAIN and self._whole[name] > tried:
                rate = self._hopes.get(name, _HOPE_RATE)
                self._whole[name] += rate * (tried - self._whole[name])
                self._hoped.add(name)
                self._rounds = None

    def _judge_hope(self, name: str, *, was_vain: bool) -> None:
        """Those that are slow each time are asked for more and more rarely."""
        if name in self._hoped:
            self._hoped.remove(name)
            rate = self._hopes.get(name, _HOPE_RATE) / 2
            self._hopes[name] = max(_LEAST_HOPE, rate) if was_vain else _HOPE_RATE

    def draft_seconds(self, drafter: str, num_requests: int, level_sizes: Sequence[int]) -> float:
        """One answer for `num_requests` at once; `level_sizes` counts its guesses by depth. Less
        than 0 where it is a whole round that is known."""
        if level_sizes and self.is_whole(drafter):
            return self._whole[drafter] - self.round_seconds(1, 0, sum(level_sizes))[-1]
        levels = self._levels(level_sizes)
        return self.target.speed * self._of(drafter).seconds(num_requests, levels)

    @property
    def guess_costs(self) -> dict[str, float]:
        """One guess for one request, in plain passes, of drafters that were measured."""
        plain = self.target.seconds(1) / self.target.speed
        return {name: cost.seconds(1, 1) / plain for name, cost in list(self._drafters.items())}

    def is_cheap(self, drafter: str, num_requests: int) -> bool:
        """Whether to ask this drafter at every look, by what its answers usually take, however
        many guesses they have. One that was not heard often is asked, to find out."""
        cost = self._drafters.get(drafter)
        if cost is None or not cost.is_known:
            return True
        plain = self.plain_seconds(num_requests) / self.target.speed
        return cost.usual_seconds * num_requests <= _CHEAP * plain

    def may_read(self, drafter: str, num_rows: int, num_left: int) -> bool:
        """Whether it may read so many rows of a text first, of which at most so much is to come."""
        seconds = self.target.speed * self._of(drafter).per_row * num_rows
        return seconds <= _READING * num_left * self.plain_seconds(1)

    def observe_draft(
        self, drafter: str, num_requests: int, level_sizes: Sequence[int], seconds: float
    ) -> None:
        if num_requests == 1 and self.is_whole(drafter):
            return  # begun early: this is what was still waited for
        if not self._num_learnt((drafter, num_requests, len(level_sizes))):
            return
        levels, seconds = self._levels(level_sizes), seconds / self.target.speed
        cost = self._drafters.get(drafter)
        if cost is None:
            cost = self._drafters[drafter] = DraftCost.of_answer(num_requests, levels, seconds)
        cost.observe(num_requests, levels, seconds)

    def note_round(self, times: StepTimes) -> None:
        """One that nobody weighed. Those without guesses are what others are compared with; several
        are learnt from together, which takes a fraction of the time."""
        self._count_round(times)
        if self._observe_whole(times) or self._was_interrupted(times) or self._is_settling(times):
            return
        if times.num_tokens != times.num_requests:
            return
        if times.num_requests != self._num_noted:
            self._noted.clear()
            self._num_noted = times.num_requests
        seconds = times.pass_seconds
        beside = seconds / self.plain_seconds(times.num_requests)
        self._noted.append((beside, seconds, times.rest_seconds, self.context_len))
        if len(self._noted) == _NUM_NOTED:
            self._learn_noted()

    def observe_round(self, times: StepTimes) -> None:
        """A round that was weighed."""
        self._count_round(times)
        if self._observe_whole(times) or self._was_interrupted(times) or self._is_settling(times):
            return
        num = self._num_learnt(times.num_tokens) if times.num_guesses else 1
        if num == 0:
            return
        if times.num_guesses:
            self._observe_excess(times, num)
        keys = NO_KEYS
        if self._num_rounds:  # rows of a prompt attend to others of it as well
            keys = self._keys(times.num_requests, times.num_guesses)
        self.observe_pass(times.num_tokens, times.pass_seconds, num, keys)
        self.observe_rest(times.num_requests, times.num_guesses, times.rest_seconds)

    @property
    def _lost(self) -> float:
        """Of the next round's head start, by guessing in this one."""
        return self.target.speed * self._lapse * self._ahead

    def _count_round(self, times: StepTimes) -> None:
        reads_prompt = times.num_tokens > times.num_requests + times.num_guesses
        self._num_rounds = 0 if reads_prompt else self._num_rounds + 1

    def _is_settling(self, times: StepTimes) -> bool:
        """Whether the round is not to be learnt from. Behind a prompt the caches of some machines
        are cold for a dozen passes: those of all sizes take the same time more, which no guess
        saves. One in some is learnt from all the same, and so are sizes that are hardly known, as
        there may be none but short answers; in a batch all are, since prompts come at any time."""
        if not self.is_alone or self._num_rounds >= _SETTLING:
            return False
        is_known = times.num_guesses == 0 or self._met[times.num_tokens] >= _FEW
        return is_known and self._num_rounds % _ONE_IN > 0

    def _was_interrupted(self, times: StepTimes) -> bool:
        """Whether others took their time before the step, while its pass went on: nothing is to be
        learnt of it. Else its head start is."""
        has_guessed, self._has_guessed = self._has_guessed, times.num_guesses > 0
        was_plain, self._was_plain = self._was_plain, times.num_tokens == times.num_requests
        if has_guessed:
            self._lapse += _AHEAD_RATE * ((times.num_guesses == 0) - self._lapse)
        elif self._was_plain:
            host = times.rest_seconds + times.look_seconds
            if times.head_start > _MOST_AHEAD * host:
                return True
            if was_plain:  # none is begun behind a prompt
                self._ahead += _AHEAD_RATE * (times.head_start / self.target.speed - self._ahead)
        return False

    def _num_learnt(self, met: object) -> int:
        """For how many of its like it is learnt from: 0, not at all. To learn takes time, too, so
        of what was met often one stands for some others."""
        self._met[met] += 1
        if self._met[met] <= _OFTEN:
            return 1
        return 0 if self._met[met] % _ONE_IN else _ONE_IN

    def _observe_excess(self, times: StepTimes, num_rounds: int) -> None:
        num, num_guesses = times.num_requests, times.num_guesses
        *_, known = self.round_seconds(num, times.num_tokens - num - num_guesses, num_guesses)
        found = times.pass_seconds + times.rest_seconds - (known - self._lost)
        most = _EXCESS_SURPRISE * known
        found = max(-most, min(most, found)) / self.target.speed + max(0.0, self._excess)
        self._excess += (1 - (1 - _EXCESS_RATE) ** num_rounds) * (found - self._excess)

    def _learn_noted(self) -> None:
        if self._noted:
            _, seconds, rest, context_len = sorted(self._noted)[len(self._noted) // 2]
            num = self._num_noted
            self.observe_pass(num, seconds, len(self._noted), (context_len * num, 0.0))
            self.observe_rest(num, 0, rest)
            self._noted.clear()

    def observe_pass(
        self, num_tokens: int, seconds: float, num_passes: int = 1, keys: Keys = NO_KEYS
    ) -> None:
        self.target.observe(num_tokens, seconds, num_passes, keys)
        self._least_price = self._rounds = None

    def observe_rest(self, num_requests: int, num_guesses: int, seconds: float) -> None:
        """What a round took besides its pass, its drafters and the choice."""
        self._rest.observe(num_requests, num_guesses, max(0.0, seconds) / self.target.speed)
        self._least_price = self._rounds = None

    def _levels(self, level_sizes: Sequence[int]) -> float:
        """Levels of one guess that would cost as much as these."""
        if not level_sizes:
            return 0.0
        if max(level_sizes) == 1:
            return float(len(level_sizes))
        if min(level_sizes) == max(level_sizes):
            total = len(level_sizes) * self.target.seconds(level_sizes[0])
        else:
            total = sum(map(self.target.seconds, level_sizes))
        return total / self.target.seconds(1)

    def _of(self, drafter: str) -> DraftCost:
        if drafter in self._drafters:
            return self._drafters[drafter]
        plain = self.target.seconds(1) / self.target.speed
        return DraftCost(0.0, _UNMEASURED * plain)
