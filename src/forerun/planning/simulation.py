"""A round on a simulated clock: recorded costs, given acceptance, any policy.

A text is a row of outcomes: whether a guess for position t holds. Every policy meets the same
outcomes, so two of them differ only by what they chose.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from forerun.planning.choice import Candidate, Standing
from forerun.planning.controller import Controller

_MISS = -1  # a guess that is never the token of its position


@dataclass(frozen=True)
class SimulatedDrafter:
    """`outcomes[slot][t]`: a guess for position t of this slot's text holds (True), misses
    (False), or is not made (None). A level costs `cost` plain passes."""

    name: str
    cost: float
    outcomes: Sequence[Sequence[bool | None]]

    @property
    def offers(self) -> bool:
        """A lookup does; a draft model is asked when it is to guess."""
        return self.cost == 0

    def guesses(self, slot: int, position: int, depth: int) -> list[int]:
        """The chain from `position` on; the true token of a position is its number."""
        text = self.outcomes[slot]
        chain = []
        for t in range(position, position + depth):
            outcome = text[t % len(text)]
            if outcome is None:
                break
            chain.append(t if outcome else _MISS)
        return chain


@dataclass(frozen=True)
class World:
    """`pass_costs(n)`: a pass over n tokens, in plain passes.

    `noise` multiplies what policies hear of costs, not what they are charged: luck with the
    clock is no merit, being misled by it is a fault.
    """

    pass_costs: Callable[[int], float]
    drafters: Sequence[SimulatedDrafter]
    max_depth: int
    num_slots: int = 1
    num_tokens: int = 1500  # per slot, on average
    answer_len: int = 256  # then the slot takes a new request
    noise: Callable[[random.Random], float] = lambda _: 1.0
    seed: int = 0

    def drafter(self, name: str) -> SimulatedDrafter:
        return next(drafter for drafter in self.drafters if drafter.name == name)


@dataclass
class Slot:
    """A place in the batch and the request that has it."""

    idx: int
    request: int
    answer_len: int
    position: int = 0
    num_emitted: int = 0  # by this request

    @property
    def num_left(self) -> int:
        return self.answer_len - self.num_emitted


@dataclass(frozen=True)
class Ask:
    """What a policy wants for one slot."""

    drafter: str | None
    depth: int


class Policy(Protocol):
    """Plans rounds, and hears what came of them."""

    def plan(self, slots: Sequence[Slot]) -> list[Ask]: ...

    def drafted(self, drafter: str, chains: Sequence[Sequence[int]], seconds: float) -> None: ...

    def passed(self, num_tokens: int, num_requests: int, seconds: float) -> None: ...

    def emitted(self, slot: Slot, ask: Ask, num_guessed: int, num_accepted: int) -> None: ...

    def ended(self, slot: Slot) -> None: ...


@dataclass
class Run:
    """What a run came to."""

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
        """The rate of the same rounds at other costs: a fixed policy makes the same ones."""
        passes = sum(num * pass_costs(size) for size, num in self.pass_sizes.items())
        levels = sum(num * pass_costs(size) for size, num in self.level_sizes.items())
        return self.num_emitted / (passes + draft_cost * levels)


def simulate(world: World, policy: Policy) -> Run:
    """Run until the batch has emitted its tokens."""
    slots = [Slot(idx, idx, world.answer_len) for idx in range(world.num_slots)]
    clock, run = random.Random(world.seed), Run()
    while run.num_emitted < world.num_tokens * world.num_slots:
        asks = policy.plan(slots)
        chains = _draft(world, policy, slots, asks, clock, run)
        num_tokens = len(slots) + sum(map(len, chains))
        seconds = world.pass_costs(num_tokens)
        policy.passed(num_tokens, len(slots), seconds * world.noise(clock))
        run.seconds += seconds
        run.pass_sizes[num_tokens] += 1
        run.num_rounds += 1
        run.num_guesses += num_tokens - len(slots)
        for slot, ask, chain in zip(slots, asks, chains, strict=True):
            run.depths.append(len(chain))
            run.num_emitted += _commit(policy, slot, ask, chain)
            if slot.num_left == 0:
                policy.ended(slot)
                slot.request += len(slots)
                slot.num_emitted = 0
    return run


def _draft(
    world: World,
    policy: Policy,
    slots: Sequence[Slot],
    asks: Sequence[Ask],
    clock: random.Random,
    run: Run,
) -> list[list[int]]:
    """Each drafter answers all its requests at once; a level is a pass over its nodes."""
    chains: list[list[int]] = [[] for _ in slots]
    for drafter in world.drafters:
        mine = [i for i, ask in enumerate(asks) if ask.drafter == drafter.name and ask.depth]
        for i in mine:
            depth = min(asks[i].depth, slots[i].num_left - 1)
            chains[i] = drafter.guesses(slots[i].idx, slots[i].position, depth)
        if mine:
            answers = [chains[i] for i in mine]
            sizes = level_sizes(answers)
            run.level_sizes.update(sizes)
            seconds = drafter.cost * sum(map(world.pass_costs, sizes))
            policy.drafted(drafter.name, answers, seconds * world.noise(clock))
            run.seconds += seconds
    return chains


def level_sizes(chains: Sequence[Sequence[int]]) -> list[int]:
    """How many chains reach each level."""
    most = max(map(len, chains))
    return [sum(len(chain) > level for chain in chains) for level in range(most)]


def _commit(policy: Policy, slot: Slot, ask: Ask, chain: Sequence[int]) -> int:
    num_accepted = 0
    while num_accepted < len(chain) and chain[num_accepted] != _MISS:
        num_accepted += 1
    policy.emitted(slot, ask, len(chain), num_accepted)
    slot.position += num_accepted + 1
    slot.num_emitted += num_accepted + 1
    return num_accepted + 1


class FixedDepth:
    """The same drafter and depth for everyone, always; depth 0 is plain decoding."""

    def __init__(self, drafter: str, depth: int) -> None:
        self._ask = Ask(drafter if depth else None, depth)

    def plan(self, slots: Sequence[Slot]) -> list[Ask]:
        return [self._ask] * len(slots)

    def drafted(self, drafter: str, chains: Sequence[Sequence[int]], seconds: float) -> None: ...

    def passed(self, num_tokens: int, num_requests: int, seconds: float) -> None: ...

    def emitted(self, slot: Slot, ask: Ask, num_guessed: int, num_accepted: int) -> None: ...

    def ended(self, slot: Slot) -> None: ...


class Controlled:
    """The controller as the engine drives it."""

    def __init__(self, controller: Controller, world: World) -> None:
        self._controller = controller
        self._world = world

    def plan(self, slots: Sequence[Slot]) -> list[Ask]:
        choices = self._controller.plan([self._standing(slot, len(slots)) for slot in slots])
        return [Ask(choice.drafter, choice.depth) for choice in choices]

    def _standing(self, slot: Slot, num_requests: int) -> Standing:
        candidates = []
        for drafter in self._world.drafters:
            num_offered = None
            if drafter.offers and self._controller.is_cheap(drafter.name, num_requests):
                chain = drafter.guesses(slot.idx, slot.position, self._world.max_depth)
                self._controller.offered(slot.request, drafter.name, [chain] if chain else ())
                num_offered = len(chain)
            candidates.append(Candidate(drafter.name, num_offered))
        return Standing(slot.request, slot.num_left - 1, tuple(candidates))

    def drafted(self, drafter: str, chains: Sequence[Sequence[int]], seconds: float) -> None:
        self._controller.observe_draft(drafter, len(chains), level_sizes(chains), seconds)

    def passed(self, num_tokens: int, num_requests: int, seconds: float) -> None:
        self._controller.observe_pass(num_tokens, num_requests, seconds)

    def emitted(self, slot: Slot, ask: Ask, num_guessed: int, num_accepted: int) -> None:
        if ask.drafter is not None and num_guessed:
            self._controller.observe_verified(slot.request, ask.drafter, num_guessed, num_accepted)
        elif ask.drafter is not None:
            self._controller.observe_silence(slot.request, ask.drafter)
        end = slot.position + num_accepted + 1
        self._controller.emitted(slot.request, range(slot.position, end))

    def ended(self, slot: Slot) -> None:
        self._controller.end(slot.request)
