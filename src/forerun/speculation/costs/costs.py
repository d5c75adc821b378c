"""What a round costs on this machine, learnt from seconds that are passed in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import NO_KEYS, Keys, PassCost, clipped
from forerun.speculation.step_times import StepTimes

# The assumed cost of a level of a drafter that was not measured, as a share of a plain pass.
_UNMEASURED: Final = 0.1
_CHEAP: Final = 0.05  # of a plain pass: what an answer may cost to be asked for at every look
_READING: Final = 0.05  # of the rest of an answer: the time that a drafter may spend on reading
_NUM_NOTED: Final = 8  # plain rounds that are learnt from together, at most
_OFTEN: Final = 32  # rounds of a size, or answers of a drafter, that are all learnt from
_ONE_IN: Final = 4  # after these, and in the first rounds after a prompt, one in so many is
_SETTLING: Final = 12  # the first rounds after a prompt
_FEW: Final = 8  # rounds of a size, until it is known
_LIKE: Final = 32  # tokens of context that make no difference
_FORESEEN: Final = 16  # the least number of guesses up to which rounds are computed at once
_EXCESS_RATE: Final = 1 / 16  # weight of the latest round with guesses in the excess
_EXCESS_SURPRISE: Final = 0.1  # of a round: a cap, since accidents only make rounds slower
_WHOLE_RATE: Final = 1 / 16
_HOPE_RATE: Final = 1 / 1024  # by which an estimate returns to its first value, per plain round
_LEAST_HOPE: Final = _HOPE_RATE / 64
_AHEAD_RATE: Final = 1 / 16
_MOST_AHEAD: Final = 2  # times the host's own work in a plain round
_LEAST_APART: Final = 4e-3  # seconds of a pass: see `may_draw_apart`
_PLAIN: Final = ""  # stands for plain rounds where drafters are named; no drafter has this name


class Costs:
    """The costs of the target's pass, of each drafter's answers, and of the rest of a round
    (verdicts, commit).

    `Speculation` describes the present round: `context_len` is the average context of its rows,
    `is_alone` means that it is of one request and runs no prompt, and `is_free` that nothing but
    noise decides the next tokens. A busy machine slows everything alike, so the costs of drafters
    and the rest are kept in seconds at calibration, and multiplied with the pass's speed. The time
    of the choice itself is spent whatever is chosen, so no round's cost includes it.
    """

    def __init__(self, target: PassCost, drafters: dict[str, DraftCost] | None = None) -> None:
        self.target = target
        self.context_len = 0.0
        self.is_alone = self.is_free = True
        self._drafters = drafters or {}
        self._rest = DraftCost(0.0, 0.0)
        self._excess = 0.0  # see `round_seconds`
        self._ahead = 0.0  # the usual head start of a plain round after another plain round
        self._lapse = 1.0  # how often the round after one with guesses is plain
        self._has_guessed = self._was_plain = False  # of the last round
        self._num_rounds = _SETTLING  # since the last prompt
        self._whole: dict[str, float] = {}  # seconds by drafter: see `expect_whole`
        self._tried: dict[str, float] = {}  # the same, as measured before any request
        self._hopes: dict[str, float] = {}  # rates by drafter: see `_hope`
        self._hoped: set[str] = set()  # drafters whose estimates `_hope` moved since their rounds
        self._last_whole: str | None = None  # the drafter of the last round, if timed whole
        # The latest results, until something new is learnt.
        self._least_price: tuple[tuple[int, ...], float] | None = None
        self._rounds: tuple[tuple[int, ...], list[float]] | None = None
        self._met: Counter[object] = Counter()  # sizes of rounds with guesses, and of answers
        # Plain rounds: pass ÷ its expected time, seconds of the pass, of the rest, and the context.
        self._noted: list[tuple[float, float, float, float]] = []
        self._num_noted = 0  # requests in each of `_noted`

    def round_seconds(
        self, num_requests: int, num_prompt_tokens: int, max_guesses: int
    ) -> list[float]:
        """Return the seconds of rounds with 0 … `max_guesses` guesses, without drafting."""
        like = num_requests, num_prompt_tokens, self._context, self._is_early
        if self._rounds is None or self._rounds[0] != like or len(self._rounds[1]) <= max_guesses:
            most = max(_FORESEEN, max_guesses)
            self._rounds = like, self._round_seconds(num_requests, num_prompt_tokens, most)
        return self._rounds[1][: max_guesses + 1]

    def _round_seconds(
        self, num_requests: int, num_prompt_tokens: int, max_guesses: int
    ) -> list[float]:
        """Compute `round_seconds`.

        A round with guesses takes longer than its parts: code that runs seldom is cold, and on a
        GPU a plain pass that is not needed may be under way. This excess is learnt. A plain round
        has a head start, which is lost after a round with guesses.
        """
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
        """The context's length, in steps that make no difference to speak of."""
        return int(self.context_len) // _LIKE

    def plain_seconds(self, num_requests: int) -> float:
        """Return the seconds of a pass without guesses."""
        return self.target.seconds(num_requests) + self._context_seconds(num_requests, 0)

    def _context_seconds(self, num_requests: int, num_guesses: int) -> float:
        """Return the seconds that the present context adds to these rows."""
        return self.target.context_seconds(self._keys(num_requests, num_guesses))

    def _keys(self, num_requests: int, num_guesses: int) -> Keys:
        return self.context_len * num_requests, self.context_len * num_guesses

    def least_price(self, num_requests: int, num_prompt_tokens: int) -> float:
        """Return the least time that one more guess can add to a round, in tokens that a plain
        round emits in that time. A guess that brings less is never worth it."""
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
        """Start with the excess of a whole plain pass: where plain passes begin early, one that is
        not needed is under way when guesses come."""
        self._excess, self._rounds = self.target.seconds(1), None

    def expect_excess(self, drafter: str, depth: int, seconds: float) -> None:
        """Start with the excess that follows from a measured round: it took `seconds` more than a
        plain one, of which its pass and its drafter explain a part."""
        parts = self.target.seconds(1 + depth) - self.target.seconds(1)
        parts += self.draft_seconds(drafter, 1, [1] * depth)
        self._excess, self._rounds = max(0.0, seconds - parts) / self.target.speed, None

    def expect_whole(self, drafter: str, seconds: float, plain: float) -> None:
        """Take a single request's rounds with this drafter to cost `seconds` as a whole, with any
        number of guesses, and plain rounds `plain`.

        For rounds that begin early on a device: the times of their parts say nothing.
        """
        self._whole |= {drafter: seconds, _PLAIN: plain}
        self._tried, self._rounds = dict(self._whole), None

    def _plain_whole(self) -> float:
        """Return the seconds of a whole plain round, assumed to have slowed down no more than
        rounds with guesses: the latest plain rounds may have been slow by accident, and there may
        be none to correct that for long."""
        slowdown = max(self._whole[name] / self._tried[name] for name in self._tried if name)
        return min(self._whole[_PLAIN], self._tried[_PLAIN] * max(1.0, slowdown))

    @property
    def knows_whole(self) -> bool:
        """Whether some rounds begin early; a plain round after these is slow just for that."""
        return bool(self._whole)

    def is_whole(self, drafter: str | None) -> bool:
        """Whether the cost of a present round with this drafter is known as a whole."""
        return self._is_early and drafter in self._whole

    @property
    def _is_early(self) -> bool:
        """Whether the present round may begin early, as those that were timed whole did."""
        return self.is_alone and self.is_free

    def may_draw_apart(self, drafter: str) -> bool:
        """Whether a head may pay if more than noise decides the next tokens.

        Then no round begins early, and the host draws the guesses, which takes as long as several
        passes of a small model.
        """
        return drafter not in self._whole or self.plain_seconds(1) > _LEAST_APART

    def _observe_whole(self, times: StepTimes) -> bool:
        """Learn from a round that is timed whole; return whether it is one with guesses, so that
        nothing is to be learnt from its parts.

        Only a round that follows another such one is learnt from: others were not begun early, and
        the drafter may have read a prompt first.
        """
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
        """Let the estimates of rounds that became slow return towards their first values, so that
        drafters which are not chosen any more are tried again some time."""
        for name, tried in self._tried.items():
            if name != _PLAIN and self._whole[name] > tried:
                rate = self._hopes.get(name, _HOPE_RATE)
                self._whole[name] += rate * (tried - self._whole[name])
                self._hoped.add(name)
                self._rounds = None

    def _judge_hope(self, name: str, *, was_vain: bool) -> None:
        """Halve the rate of a drafter whose rounds were slow again, so that it is tried ever more
        rarely."""
        if name in self._hoped:
            self._hoped.remove(name)
            rate = self._hopes.get(name, _HOPE_RATE) / 2
            self._hopes[name] = max(_LEAST_HOPE, rate) if was_vain else _HOPE_RATE

    def draft_seconds(self, drafter: str, num_requests: int, level_sizes: Sequence[int]) -> float:
        """Return the seconds of one answer for `num_requests`; `level_sizes` are guesses by depth.

        If rounds are known as a whole, this is what is missing to the whole, and may be below 0.
        """
        if level_sizes and self.is_whole(drafter):
            return self._whole[drafter] - self.round_seconds(1, 0, sum(level_sizes))[-1]
        levels = self._levels(level_sizes)
        return self.target.speed * self._of(drafter).seconds(num_requests, levels)

    @property
    def guess_costs(self) -> dict[str, float]:
        """The cost of one guess for one request, in plain passes, by measured drafter."""
        plain = self.target.seconds(1) / self.target.speed
        return {name: cost.seconds(1, 1) / plain for name, cost in list(self._drafters.items())}

    def is_cheap(self, drafter: str, num_requests: int) -> bool:
        """Whether to ask a drafter at every look, judged by the usual time of its answers. One
        that has not been asked often is asked, to find out."""
        cost = self._drafters.get(drafter)
        if cost is None or not cost.is_known:
            return True
        plain = self.plain_seconds(num_requests) / self.target.speed
        return cost.usual_seconds * num_requests <= _CHEAP * plain

    def may_read(self, drafter: str, num_rows: int, num_left: int) -> bool:
        """Whether a drafter may read `num_rows` of a text before it guesses, if at most `num_left`
        tokens are to come."""
        seconds = self.target.speed * self._of(drafter).per_row * num_rows
        return seconds <= _READING * num_left * self.plain_seconds(1)

    def observe_draft(
        self, drafter: str, num_requests: int, level_sizes: Sequence[int], seconds: float
    ) -> None:
        if num_requests == 1 and self.is_whole(drafter):
            return  # begun early, so this is only the part that was waited for
        if not self._num_learnt((drafter, num_requests, len(level_sizes))):
            return
        levels, seconds = self._levels(level_sizes), seconds / self.target.speed
        cost = self._drafters.get(drafter)
        if cost is None:
            cost = self._drafters[drafter] = DraftCost.of_answer(num_requests, levels, seconds)
        cost.observe(num_requests, levels, seconds)

    def note_round(self, times: StepTimes) -> None:
        """Note a round in which nothing was weighed. Plain ones, with which others are compared,
        are learnt from several at a time, which takes a fraction of the time."""
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
        """Learn from a round that was weighed."""
        self._count_round(times)
        if self._observe_whole(times) or self._was_interrupted(times) or self._is_settling(times):
            return
        num = self._num_learnt(times.num_tokens) if times.num_guesses else 1
        if num == 0:
            return
        if times.num_guesses:
            self._observe_excess(times, num)
        keys = NO_KEYS
        if self._num_rounds:  # with a prompt, rows attend to its other rows as well
            keys = self._keys(times.num_requests, times.num_guesses)
        self.observe_pass(times.num_tokens, times.pass_seconds, num, keys)
        self.observe_rest(times.num_requests, times.num_guesses, times.rest_seconds)

    @property
    def _lost(self) -> float:
        """The seconds of the next round's head start that guessing in this one usually loses."""
        return self.target.speed * self._lapse * self._ahead

    def _count_round(self, times: StepTimes) -> None:
        reads_prompt = times.num_tokens > times.num_requests + times.num_guesses
        self._num_rounds = 0 if reads_prompt else self._num_rounds + 1

    def _is_settling(self, times: StepTimes) -> bool:
        """Whether not to learn from a round because it follows a prompt closely.

        After a prompt the caches of some machines are cold for a dozen passes. Passes of all sizes
        take the same extra time, which guesses do not save. One round in `_ONE_IN` is learnt from
        all the same, and sizes that are hardly known are too, since all answers may be short; in a
        batch all rounds are, since prompts come at any time.
        """
        if not self.is_alone or self._num_rounds >= _SETTLING:
            return False
        is_known = times.num_guesses == 0 or self._met[times.num_tokens] >= _FEW
        return is_known and self._num_rounds % _ONE_IN > 0

    def _was_interrupted(self, times: StepTimes) -> bool:
        """Whether a plain round has too large a head start: other code, such as a slow reader, ran
        before the step while its pass went on, so nothing is learnt. Else learn the head start."""
        has_guessed, self._has_guessed = self._has_guessed, times.num_guesses > 0
        was_plain, self._was_plain = self._was_plain, times.num_tokens == times.num_requests
        if has_guessed:
            self._lapse += _AHEAD_RATE * ((times.num_guesses == 0) - self._lapse)
        elif self._was_plain:
            host = times.rest_seconds + times.look_seconds
            if times.head_start > _MOST_AHEAD * host:
                return True
            if was_plain:  # after a prompt there is no head start
                self._ahead += _AHEAD_RATE * (times.head_start / self.target.speed - self._ahead)
        return False

    def _num_learnt(self, met: object) -> int:
        """Return how many observations like `met` this one stands for; 0: it is not learnt from.

        Learning takes time, so of what was met often only one in `_ONE_IN` is learnt from.
        """
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
        """Learn what a round took besides its pass, its drafters and the choice."""
        self._rest.observe(num_requests, num_guesses, max(0.0, seconds) / self.target.speed)
        self._least_price = self._rounds = None

    def _levels(self, level_sizes: Sequence[int]) -> float:
        """Return how many levels of one guess would cost a draft model as much as these."""
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
