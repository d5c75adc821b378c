"""Rounds on a simulated clock, with recorded costs, given acceptance and any policy.

A text is a row of outcomes: whether a guess for position t is accepted. Every policy meets the same
outcomes, so that two policies differ only by their choices.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from forerun.drafters import Budget
from forerun.speculation.choice import Choice, Way
from forerun.speculation.controller import Controller
from forerun.speculation.step_times import StepTimes
from forerun.types import Proposal

MISS = 1 << 40  # a guess that is never the token of its position


@dataclass(frozen=True)
class SimulatedDrafter:
    """`outcomes[slot][t]`: a guess for position t of this slot's text is accepted (True), misses
    (False), or is not made (None). A level costs `cost` plain passes."""

    name: str
    cost: float
    outcomes: Sequence[Sequence[bool | None]]

    @property
    def picks(self) -> bool:
        """Whether the drafter picks: a lookup does; a draft model is asked only when it guesses."""
        return self.cost == 0

    def guesses(self, slot: int, position: int, depth: int) -> list[int]:
        """Return the chain from `position` on; the true token of a position is its number."""
        text = self.outcomes[slot]
        chain = []
        for t in range(position, position + depth):
            outcome = text[t % len(text)]
            if outcome is None:
                break
            chain.append(t if outcome else MISS)
        return chain


@dataclass(frozen=True)
class World:
    """`pass_costs(n)` is the cost of a pass over n tokens, in plain passes.

    `noise` multiplies the costs that policies observe, not those that they are charged: a policy
    gains nothing by luck with the clock, but loses if the clock misleads it.
    """

    pass_costs: Callable[[int], float]
    drafters: Sequence[SimulatedDrafter]
    max_depth: int
    num_slots: int = 1
    num_tokens: int = 1500  # per slot, on average
    answer_len: int = 256  # tokens; then the slot takes a new request
    noise: Callable[[random.Random], float] = lambda _: 1.0
    seed: int = 0

    def drafter(self, name: str) -> SimulatedDrafter:
        return next(drafter for drafter in self.drafters if drafter.name == name)


@dataclass
class Slot:
    """A slot of the batch and its request."""

    idx: int
    request: int
    answer_len: int
    position: int = 0
    num_emitted: int = 0  # by the current request

    @property
    def num_left(self) -> int:
        return self.answer_len - self.num_emitted


Asked: TypeAlias = tuple[str | None, int]  # the drafter for a slot, and the depth


class Policy(Protocol):
    """Plans rounds, and is told their results."""

    def plan(self, slots: Sequence[Slot]) -> list[Asked]: ...

    def commit(self, slot: Slot, chain: Sequence[int], num_accepted: int) -> None: ...

    def observe(self, times: StepTimes) -> None: ...

    def end(self, slot: Slot) -> None: ...


@dataclass
class Run:
    """The totals of a run."""

    num_emitted: int = 0
    seconds: float = 0.0
    num_rounds: int = 0
    num_guesses: int = 0
    depths: list[int] = field(default_factory=list)
    pass_sizes: Counter[int] = field(default_factory=Counter)
    level_sizes: Counter[int] = field(default_factory=Counter)  # passes of a draft model

    @property
    def rate(self) -> float:
        return self.num_emitted / self.seconds

    def rate_at(self, pass_costs: Callable[[int], float], draft_cost: float) -> float:
        """Return the rate of the same rounds at other costs: a fixed policy makes the same ones."""
        passes = sum(num * pass_costs(size) for size, num in self.pass_sizes.items())
        levels = sum(num * pass_costs(size) for size, num in self.level_sizes.items())
        return self.num_emitted / (passes + draft_cost * levels)


def simulate(world: World, policy: Policy) -> Run:
    """Run until the batch has emitted its tokens."""
    slots = [Slot(idx, idx, world.answer_len) for idx in range(world.num_slots)]
    clock, run = random.Random(world.seed), Run()
    while run.num_emitted < world.num_tokens * world.num_slots:
        times = StepTimes(clock=lambda: 0.0, num_requests=len(slots))
        asked = policy.plan(slots)
        chains = _draft(world, slots, asked, clock, run, times)
        times.num_guesses = sum(map(len, chains))
        times.num_tokens = len(slots) + times.num_guesses
        seconds = world.pass_costs(times.num_tokens)
        times.pass_seconds = seconds * world.noise(clock)
        run.seconds += seconds
        run.pass_sizes[times.num_tokens] += 1
        run.num_rounds += 1
        run.num_guesses += times.num_guesses
        for slot, chain in zip(slots, chains, strict=True):
            run.depths.append(len(chain))
            run.num_emitted += _commit(policy, slot, chain)
            if slot.num_left == 0:
                policy.end(slot)
                slot.request += len(slots)
                slot.num_emitted = 0
        policy.observe(times)
    return run


def _draft(
    world: World,
    slots: Sequence[Slot],
    asked: Sequence[Asked],
    clock: random.Random,
    run: Run,
    times: StepTimes,
) -> list[list[int]]:
    """Let each drafter answer all its requests at once; a level is a pass over its nodes."""
    chains: list[list[int]] = [[] for _ in slots]
    for drafter in world.drafters:
        mine = [i for i, (name, depth) in enumerate(asked) if name == drafter.name and depth]
        for i in mine:
            depth = min(asked[i][1], slots[i].num_left - 1)
            chains[i] = drafter.guesses(slots[i].idx, slots[i].position, depth)
        if mine:
            sizes = level_sizes([chains[i] for i in mine])
            run.level_sizes.update(sizes)
            seconds = drafter.cost * sum(map(world.pass_costs, sizes))
            times.drafts.append((drafter.name, len(mine), sizes, seconds * world.noise(clock)))
            run.seconds += seconds
    return chains


def level_sizes(chains: Sequence[Sequence[int]]) -> list[int]:
    """Return how many chains reach each level."""
    most = max(map(len, chains))
    return [sum(len(chain) > level for chain in chains) for level in range(most)]


def _commit(policy: Policy, slot: Slot, chain: Sequence[int]) -> int:
    num_accepted = 0
    while num_accepted < len(chain) and chain[num_accepted] != MISS:
        num_accepted += 1
    policy.commit(slot, chain, num_accepted)
    slot.position += num_accepted + 1
    slot.num_emitted += num_accepted + 1
    return num_accepted + 1


class FixedDepth:
    """The same drafter and depth for every slot and round; depth 0 is plain decoding."""

    def __init__(self, drafter: str, depth: int) -> None:
        self._asked = (drafter if depth else None), depth

    def plan(self, slots: Sequence[Slot]) -> list[Asked]:
        return [self._asked] * len(slots)

    def commit(self, slot: Slot, chain: Sequence[int], num_accepted: int) -> None: ...

    def observe(self, times: StepTimes) -> None: ...

    def end(self, slot: Slot) -> None: ...


class Controlled:
    """The controller as `Speculation` drives it, with a look in every round."""

    def __init__(self, controller: Controller, world: World) -> None:
        self._controller = controller
        self._world = world
        self._choices: dict[int, Choice] = {}

    def plan(self, slots: Sequence[Slot]) -> list[Asked]:
        ways = [
            [way for drafter in self._world.drafters for way in self._ways(drafter, slot, slots)]
            for slot in slots
        ]
        choices = self._controller.choose(ways)
        self._choices = {slot.idx: choice for slot, choice in zip(slots, choices, strict=True)}
        return [(choice.drafter, choice.depth) for choice in choices]

    def _ways(self, drafter: SimulatedDrafter, slot: Slot, slots: Sequence[Slot]) -> list[Way]:
        depth, pick = min(self._world.max_depth, slot.num_left - 1), None
        if drafter.picks and self._controller.costs.is_cheap(drafter.name, len(slots)):
            chain = drafter.guesses(slot.idx, slot.position, self._world.max_depth)
            pick = Proposal.chain(chain)
        return self._controller.ways(slot.request, drafter.name, Budget(depth), pick)

    def commit(self, slot: Slot, chain: Sequence[int], num_accepted: int) -> None:
        text = range(slot.position, slot.position + num_accepted + 1)
        choice = self._choices[slot.idx]
        self._controller.commit(slot.request, choice, Proposal.chain(chain), text)

    def observe(self, times: StepTimes) -> None:
        self._controller.observe(times)

    def end(self, slot: Slot) -> None:
        self._controller.end(slot.request)
