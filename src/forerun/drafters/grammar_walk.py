"""The drafter that guesses along what a request's grammar leaves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.types import Grammar, Proposal

GRAMMAR: Final = "grammar"  # the drafter's name
_FORCED: Final = 0.99  # it is all that fits, and the text may be cut off before
_FADING: Final = 0.9  # of what is known of a choice, with every time it is met
_MAX_KEPT: Final = 4096  # choices
_FEW: Final = 512  # tokens: what stands between the parts of JSON is chosen among so many


class GrammarWalk(OneByOne["_Read"]):
    """Keys of an object, the rest of a word: what must come is guessed, since a pass over it is
    cheaper than one for each token. Where the grammar leaves a choice among few, what was chosen
    behind the same mark the last time: a model hardly changes how it spaces and indents.

    Such habits are learnt from all requests. They are tokens without a letter or a digit, by
    `spell`, which gives a token's bytes: nothing of what was written is kept. A guess is made while
    it and all before it are right with at least `min_chance` and what the budget asks for. A
    request without a grammar gets none.
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
        """The token that comes next behind both, and how surely."""
        if not grammar.binds(output, more):
            return None
        allowed = grammar.allowed_bits(output, more)
        choice = self._choice(allowed, more or output[-1:])
        if choice.forced is not None:
            return choice.forced, _FORCED
        habit = None if choice.number is None else self._habits.get(choice.number)
        if habit is None or not allowed[habit.token // 8] >> habit.token % 8 & 1:  # equal by chance
            return None
        return habit.token, habit.chance

    def _choice(self, allowed: bytes, written: Sequence[int]) -> _Choice:
        """Behind what was `written`."""
        num, most = _counted(allowed)
        if num == 1:
            return _Choice(None, most)
        if num > _FEW:
            return _Choice(None)
        mark = written[-1] if written and not self._is_content(written[-1]) else None
        return _Choice(hash((allowed, mark)))

    def _learn(self, grammar: Grammar, output: Sequence[int], read: _Read) -> None:
        is_bound = grammar.binds(output)  # else only before some reasoning
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
        """Letters, digits, parts of such that stand in no ASCII, and what is no text."""
        spelled = self._spell(token)
        return not spelled or any(byte > 127 or chr(byte).isalnum() for byte in spelled)


@lru_cache(maxsize=256)
def _counted(allowed: bytes) -> tuple[int, int]:
    """How many tokens fit, and the largest: asked about the same ones again and again."""
    bits = int.from_bytes(allowed, "little")
    return bits.bit_count(), bits.bit_length() - 1


class _Choice(NamedTuple):
    """`number` tells what may follow, and behind which mark; None where it is much, or where a
    token is `forced`."""

    number: int | None
    forced: int | None = None


@dataclass
class _Read:
    """How much of an output was learnt from."""

    num_tokens: int = 0


@dataclass
class _Habit:
    """What was chosen the last time, and how often it was what came."""

    token: int
    num_right: float = 1.5
    num_trials: float = 2.0

    @property
    def chance(self) -> float:
        return self.num_right / self.num_trials

    def met(self, token: int) -> None:
        self.num_right = _FADING * self.num_right + (token == self.token)
        self.num_trials = _FADING * self.num_trials + 1
