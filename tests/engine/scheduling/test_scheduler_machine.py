"""Any sequence of arrivals, steps, cancels and failures: nothing leaks, nobody starves."""

from __future__ import annotations

from random import Random
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from forerun.engine.scheduling.limits import SchedulerLimits
from forerun.engine.scheduling.queue import Ticket
from forerun.engine.scheduling.scheduler import Schedule
from tests.engine.fake_engine import FakeEngine, FakeRequest

NUM_PAGES: Final = 12
MAX_LEN: Final = 24
PROMPTS: Final = st.lists(st.integers(0, 1), min_size=1, max_size=10)


class SchedulerMachine(RuleBasedStateMachine):
    """The scheduler on a real pool, tables and prefix tree, checked against a record of ranks."""

    @initialize(
        page_size=st.sampled_from([2, 3, 5, MAX_LEN]),
        max_num_seqs=st.integers(1, 4),
        num_more_tokens=st.integers(0, 12),
        ageing=st.integers(1, 20),
        headroom=st.sampled_from([0, 0, 4]),
    )
    def open(
        self,
        page_size: int,
        max_num_seqs: int,
        num_more_tokens: int,
        ageing: int,
        headroom: int,
    ) -> None:
        max_num_tokens = max_num_seqs + num_more_tokens
        self.limits = SchedulerLimits(MAX_LEN, max_num_seqs, max_num_tokens, ageing, headroom)
        num_pages = max(2, -(-NUM_PAGES * 2 // page_size))  # fewer rows than the requests want
        num_pages = max(num_pages, -(-MAX_LEN // page_size))
        self.engine = FakeEngine(self.limits, num_pages, page_size)
        self.tickets: dict[int, Ticket] = {}
        self.num_steps = 0
        self.first: int | None = None  # the request that ranks first
        self.first_since = 0

    @rule(
        prompt=PROMPTS,
        max_tokens=st.integers(1, MAX_LEN - 10),
        priority=st.integers(-2, 2),
        data=st.data(),
    )
    def arrive(
        self, prompt: list[int], max_tokens: int, priority: int, data: st.DataObject
    ) -> None:
        salt = data.draw(st.sampled_from([None, None, "a"]))
        request = self.engine.add(prompt, max_tokens, priority, salt)
        turn = self.num_steps + priority * self.limits.ageing
        self.tickets[request.id] = Ticket(turn, request.id, request)

    @precondition(lambda self: self.engine.requests)
    @rule(seed=st.integers(0, 1 << 16), most=st.integers(0, 9), fails=st.booleans())
    def step(self, seed: int, most: int, fails: bool) -> None:
        rng = Random(seed)
        wanted = {idx: rng.randint(0, most) for idx in self.engine.requests}
        failing = {idx for idx in self.engine.requests if fails and rng.random() < 0.2}
        self.check_step(wanted, rng, failing)

    @precondition(lambda self: self.engine.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.engine.remove(data.draw(st.sampled_from(sorted(self.engine.requests))))

    def check_step(self, wanted: dict[int, int], rng: Random, failing: set[int]) -> None:
        before = dict(self.engine.requests)
        running = set(self.engine.scheduler.running)
        assert running == {idx for idx, request in before.items() if request.num_rows}
        decoding = {idx for idx in running if before[idx].num_tokens - before[idx].num_rows == 1}
        num_behind = {idx: r.num_tokens - r.num_rows for idx, r in before.items()}
        self.num_steps += 1
        schedule = self.engine.step(wanted, rng, failing)
        self.check_bounds(schedule, wanted, num_behind)
        self.check_ranks(schedule, before, running, decoding)
        self.check_the_first(schedule)

    def check_bounds(
        self, schedule: Schedule, wanted: dict[int, int], num_behind: dict[int, int]
    ) -> None:
        assert schedule.num_tokens <= self.limits.max_num_batched_tokens
        assert len(schedule.grants) <= self.limits.max_num_seqs
        assert len(self.engine.scheduler.running) <= self.limits.max_num_seqs
        for grant in schedule.grants:
            assert 0 <= grant.num_guesses <= wanted[grant.request_id]
            assert 1 <= grant.num_tokens <= num_behind[grant.request_id]

    def check_ranks(
        self,
        schedule: Schedule,
        before: dict[int, FakeRequest],
        running: set[int],
        decoding: set[int],
    ) -> None:
        """Preempted requests rank last, admitted ones first, and every decode advances."""
        granted = {grant.request_id for grant in schedule.grants}
        preempted, admitted = set(schedule.preempted), set(schedule.admitted)
        assert not preempted or not admitted
        assert decoding - preempted <= granted
        assert granted <= (running - preempted) | admitted
        staying = (running | admitted) - preempted
        waiting = set(before) - staying
        for ones, others in ((staying - admitted, preempted), (admitted, waiting)):
            if ones and others:
                worst = max(self.tickets[idx] for idx in ones)
                assert worst < min(self.tickets[idx] for idx in others)

    def check_the_first(self, schedule: Schedule) -> None:
        """Nobody starves: the request that ranks first ends within this bound, and with ageing only
        finitely many requests can come before any other."""
        assert schedule.grants or not self.engine.requests
        first = min((self.tickets[idx] for idx in self.engine.requests), default=None)
        if first is None or first.request.id != self.first:
            self.first = first.request.id if first else None
            self.first_since = self.num_steps
        assert self.num_steps - self.first_since <= (self.limits.max_num_seqs + 1) * MAX_LEN

    def teardown(self) -> None:
        """All requests that were not cancelled end with the tokens they would have had alone."""
        rng = Random(0)
        while self.engine.requests:
            wanted = {idx: rng.randint(0, 3) for idx in self.engine.requests}
            self.check_step(wanted, rng, set())
        for request in self.engine.finished:
            assert request.tokens == request.alone()
        self.engine.assert_nothing_is_held()


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, derandomize=True
)
