"""Exact laws by enumeration: run shipped code once for every way its uniforms can fall.

A `LazyUniform` is a uniform that has not been looked at yet. It knows only the interval in which
it lies; asking `u < x` splits that interval and follows one side, with its weight. `enumerate_runs`
replays the code until every side of every question has been taken, so the weights sum to one and
the probability of each outcome is exact up to float rounding. Because the *same* lazy uniform
remembers what it was asked before, code that wrongly uses one uniform for two purposes shows
its wrong law here, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar, cast

from forerun.sampling import Stream

Outcome = TypeVar("Outcome", bound=Hashable)
Stage = TypeVar("Stage")


class World:
    """One run: the answers given so far, and their weight."""

    def __init__(self, script: list[bool]) -> None:
        self._script = script
        self._num_asked = 0
        self.weight = 1.0

    def branch(self, probability: float) -> bool:
        """Take the scripted side, or the first side when the script ends here."""
        if self._num_asked == len(self._script):
            self._script.append(True)
        answer = self._script[self._num_asked]
        self._num_asked += 1
        self.weight *= probability if answer else 1 - probability
        return answer


class LazyUniform:
    def __init__(self, world: World, low: float = 0.0, high: float = 1.0) -> None:
        self._world = world
        self._low, self._high = low, high

    def carried_to(self, world: World) -> LazyUniform:
        """Return this uniform, with the interval known so far, for a run that continues here."""
        return LazyUniform(world, self._low, self._high)

    def __lt__(self, x: float) -> bool:
        x = float(x)
        if x >= self._high:
            return True
        if x <= self._low:
            return False
        below = self._world.branch((x - self._low) / (self._high - self._low))
        if below:
            self._high = x
        else:
            self._low = x
        return below


class LazyNoise:
    """Answers for `forerun.sampling.Noise.uniform`: one lazy uniform per (stream, round, draw)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._uniforms: dict[tuple[Stream, int, int], LazyUniform] = {}

    def uniform(self, stream: Stream, round_idx: int, draw_idx: int) -> float:
        """Return a `LazyUniform` as a float: `<` is all that the code under test asks of it."""
        key = (stream, round_idx, draw_idx)
        return cast(float, self._uniforms.setdefault(key, LazyUniform(self._world)))

    def carried_to(self, world: World) -> LazyNoise:
        noise = LazyNoise(world)
        noise._uniforms = {key: one.carried_to(world) for key, one in self._uniforms.items()}
        return noise


def enumerate_runs(run: Callable[[World], Stage]) -> Iterator[tuple[float, Stage]]:
    """Yield (weight, outcome) for every way the run's uniforms can fall."""
    script: list[bool] = []
    while True:
        world = World(script)
        outcome = run(world)
        yield world.weight, outcome
        while script and not script[-1]:
            script.pop()
        if not script:
            return
        script[-1] = False


def law_of(run: Callable[[World], Outcome]) -> dict[Outcome, float]:
    law: dict[Outcome, float] = defaultdict(float)
    for weight, outcome in enumerate_runs(run):
        law[outcome] += weight
    return _checked(law)


def _checked(law: dict[Outcome, float]) -> dict[Outcome, float]:
    assert abs(sum(law.values()) - 1) < 1e-12, "the enumeration missed or doubled a branch"
    return dict(law)


class Staged(Generic[Stage]):
    """Every outcome of a run's first half, with its weight and the state of its noise.

    The second half continues with the same uniforms, so the law is that of whole runs, although
    the first half runs only once for each of its own outcomes.
    """

    def __init__(self, first: Callable[[LazyNoise], Stage]) -> None:
        def run(world: World) -> tuple[Stage, LazyNoise]:
            noise = LazyNoise(world)
            return first(noise), noise

        self._halves = list(enumerate_runs(run))

    def law_of(self, second: Callable[[Stage, LazyNoise], Outcome]) -> dict[Outcome, float]:
        law: dict[Outcome, float] = defaultdict(float)
        for first_weight, (stage, noise) in self._halves:

            def run(world: World, stage: Stage = stage, noise: LazyNoise = noise) -> Outcome:
                return second(stage, noise.carried_to(world))

            for weight, outcome in enumerate_runs(run):
                law[outcome] += first_weight * weight
        return _checked(law)
