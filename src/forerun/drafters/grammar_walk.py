"""The drafter that guesses from a request's grammar."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.types import Grammar, Proposal

GRAMMAR: Final = "grammar"  # the drafter's name
_FORCED: Final = 0.99  # chance of the only token that fits: the output may be cut off before it
_FADING: Final = 0.9  # weight that a choice's older trials keep with each new one
_MAX_KEPT: Final = 4096  # choices
_FEW: Final = 512  # allowed tokens that still count as few, as between the parts of JSON


class GrammarWalk(OneByOne["_Read"]):
    """Guesses forced tokens and, among few allowed tokens, the one that came there the last time.

    Forced tokens are, for example, an object's keys: one pass over several is cheaper than a pass
    for each. Among few allowed tokens the guess is a habit: the token that last followed the same
    mark, since a model hardly changes how it spaces and indents.

    Habits are learnt from all requests. Only marks are kept, tokens without a letter or a digit in
    the bytes that `spell` returns, so nothing that an answer says reaches another request. A chain
    ends where the chance that all its guesses are accepted falls below `min_chance` or the budget's
    `least_chance`. A request without a grammar gets no guesses.
    """

    picks = says_chances = True

    def __init__(self, spell: Callable[[int], bytes], min_chance: float = 0.1) -> None:
        super().__init__()
        self._spell = spell
        self._min_chance = min_chance
        self._habits: OrderedDict[int, _Habit] = OrderedDict()  # by `_Choice.number`

    def _remember(self, request: RequestView) -> _Read:  # noqa: ARG002
        return _Read()

    def may_guess(self, request: RequestView, budget: Budget) -> bool:
        if request.grammar is None or budget.depth == 0:
            return False
        self._learn(request.grammar, request.output, self._memories[request.id])
        step = self._next(request.grammar, request.output)
        return step is not None and step[1] >= max(self._min_chance, budget.least_chance)

    def _guess(self, request: RequestView, read: _Read, budget: Budget) -> Proposal:
        grammar, output = request.grammar, request.output
        if grammar is None or budget.depth == 0:
            return Proposal.empty()
        self._learn(grammar, output, read)
        tokens, chances, chance = list[int](), list[float](), 1.0
        least_chance = max(self._min_chance, budget.least_chance)
        while len(tokens) < budget.depth and (step := self._next(grammar, output, tokens)):
            token, sure = step
            chance *= sure
            if chance < least_chance:
                break
            tokens.append(token)
            chances.append(sure)
        return Proposal.picked(tokens, chances)

    def _next(
        self, grammar: Grammar, output: Sequence[int], more: Sequence[int] = ()
    ) -> tuple[int, float] | None:
        """Return the token expected after `output` and `more`, and its chance; None if unknown."""
        if not grammar.binds(output, more):
            return None
        allowed = grammar.allowed_bits(output, more)
        choice = self._choice(allowed, more or output[-1:])
        if choice.forced is not None:
            return choice.forced, _FORCED
        habit = None if choice.number is None else self._habits.get(choice.number)
        if habit is None or not allowed[habit.token // 8] >> habit.token % 8 & 1:  # hash collision
            return None
        return habit.token, habit.chance

    def _choice(self, allowed: bytes, written: Sequence[int]) -> _Choice:
        """Return the choice among the `allowed` tokens after the tokens `written`."""
        num, most = _counted(allowed)
        if num == 1:
            return _Choice(None, most)
        if num > _FEW:
            return _Choice(None)
        mark = written[-1] if written and not self._is_content(written[-1]) else None
        return _Choice(hash((allowed, mark)))

    def _learn(self, grammar: Grammar, output: Sequence[int], read: _Read) -> None:
        is_bound = grammar.binds(output)  # if not, it bound at most before the reasoning
        known = output[: read.num_tokens]
        for idx in range(read.num_tokens, len(output) if is_bound else 0):
            more = output[read.num_tokens : idx]
            if not grammar.binds(known, more):
                continue
            choice = self._choice(grammar.allowed_bits(known, more), more or known[-1:])
            if choice.number is not None:
                self._met(choice.number, output[idx])
        read.num_tokens = len(output)

    def _met(self, choice: int, token: int) -> None:
        habit, is_mark = self._habits.get(choice), not self._is_content(token)
        if habit is not None:
            habit.met(token)
            if is_mark:
                habit.token = token
            self._habits.move_to_end(choice)
        elif is_mark:
            self._habits[choice] = _Habit(token)
            if len(self._habits) > _MAX_KEPT:
                self._habits.popitem(last=False)

    def _is_content(self, token: int) -> bool:
        """Return whether a token is no mark: it spells letters, digits, non-ASCII, or nothing."""
        spelled = self._spell(token)
        return not spelled or any(byte > 127 or chr(byte).isalnum() for byte in spelled)


@lru_cache(maxsize=256)
def _counted(allowed: bytes) -> tuple[int, int]:
    """Return how many tokens are allowed, and the largest. Cached, since the same sets recur."""
    bits = int.from_bytes(allowed, "little")
    return bits.bit_count(), bits.bit_length() - 1


class _Choice(NamedTuple):
    """What the grammar leaves open at one place of an output.

    `number` identifies the allowed tokens and the mark before them; it is None if many tokens are
    allowed, or if only one is: `forced`."""

    number: int | None
    forced: int | None = None


@dataclass
class _Read:
    """How much of an output habits were learnt from."""

    num_tokens: int = 0


@dataclass
class _Habit:
    """The mark that came the last time, and how often the previous mark came again."""

    token: int
    num_right: float = 1.5
    num_trials: float = 2.0

    @property
    def chance(self) -> float:
        return self.num_right / self.num_trials

    def met(self, token: int) -> None:
        self.num_right = _FADING * self.num_right + (token == self.token)
        self.num_trials = _FADING * self.num_trials + 1
