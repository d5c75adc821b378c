"""Each rule of the scheduler by itself."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from random import Random
from typing import Any

import pytest

from forerun.engine.scheduling.limits import SchedulerLimits
from forerun.engine.scheduling.next_pass import share_evenly
from forerun.engine.scheduling.pool import PagePromises
from forerun.engine.scheduling.target_pool import TargetPool
from forerun.errors import InvalidOption, RequestTooLarge
from tests.engine.fake_engine import FakeEngine, FakeRequest


def engine(num_pages: int = 64, page_size: int = 4, **limits: Any) -> FakeEngine:
    given = {"max_model_len": 4096, "max_num_seqs": 4, "max_num_batched_tokens": 64} | limits
    return FakeEngine(SchedulerLimits(**given), num_pages, page_size)


def run_to_end(engine: FakeEngine, most: int = 10_000) -> int:
    """Step until no request is left; return the number of steps."""
    for num_steps in range(most):
        if not engine.requests:
            return num_steps
        engine.step()
    raise AssertionError(f"still running after {most} steps")


def test_a_stream_gets_a_token_in_every_step_while_a_long_prompt_is_admitted() -> None:
    world = engine(num_pages=1024, max_num_batched_tokens=256)
    stream = world.add([1], max_tokens=40)
    world.step()
    long = world.add([2] * 2000, max_tokens=2)
    num_passes = 0
    while long.num_tokens == 2000:
        before = stream.num_tokens
        schedule = world.step(wanted={stream.id: 5})
        assert stream.num_tokens > before
        assert schedule.num_tokens <= 256
        num_passes += 1
    assert num_passes == -(-2000 // 255)


def test_prompts_come_before_guesses_and_guesses_take_the_rest() -> None:
    world = engine(max_num_batched_tokens=10)
    stream = world.add([1], max_tokens=60)
    world.step()
    world.add([2] * 15, max_tokens=1)
    grants = [world.step(wanted={stream.id: 8}).grants for _ in range(2)]
    assert [(g.num_tokens, g.num_guesses) for g in grants[0]] == [(1, 0), (9, 0)]
    assert [(g.num_tokens, g.num_guesses) for g in grants[1]] == [(1, 3), (6, 0)]


@pytest.mark.parametrize(
    ("total", "wanted", "shares"),
    [
        (10, [5, 5], [5, 5]),
        (7, [5, 5], [3, 4]),
        (7, [1, 9, 9], [1, 3, 3]),
        (0, [3, 3], [0, 0]),
        (9, [], []),
        (100, [4, 0], [4, 0]),
    ],
)
def test_guesses_are_shared_evenly(total: int, wanted: list[int], shares: list[int]) -> None:
    assert share_evenly(total, wanted) == shares


def test_guesses_shrink_and_never_preempt() -> None:
    """No page is free, and each request has two rows left in its own: for a decode and a guess."""
    world = engine(num_pages=4, headroom=0)
    one, other = world.add([1] * 6, max_tokens=9), world.add([2] * 6, max_tokens=9)
    world.step()
    schedule = world.step(wanted={one.id: 9, other.id: 9})
    assert [(g.num_tokens, g.num_guesses) for g in schedule.grants] == [(1, 1), (1, 1)]
    assert schedule.preempted == ()


def test_two_prompts_share_what_decodes_leave() -> None:
    world = engine(max_num_batched_tokens=10)
    world.add([0], max_tokens=9)
    world.step()
    prompts = [world.add([name] * 30, max_tokens=2) for name in (1, 2)]
    for request in prompts:
        world.scheduler._running.add(world.scheduler._waiting.remove(request.id))
    assert [grant.num_tokens for grant in world.step().grants] == [1, 9]


def test_a_promise_replaces_the_one_before() -> None:
    world = engine(num_pages=4, page_size=2)
    for idx in (1, 2):
        world.requests[idx] = FakeRequest(idx, (idx,), 1, world.cache.new_table())
    promises = PagePromises(TargetPool(world.cache, world.requests))
    assert promises.promise(1, 0, 4) == 4
    assert promises.promise(1, 0, 99) == 8
    assert promises.promise(1, 0, 6) == 6
    assert [promises.promise(2, 4, 5), promises.promise(2, 0, 99)] == [0, 2]
    assert promises.promise(1, 1, 1) == 1
    assert promises.promise(2, 1, 99) == 5


def test_the_last_in_rank_is_preempted_and_ends_as_if_alone() -> None:
    world = engine(num_pages=6, headroom=0)
    requests = [world.add([name] * 7, 12, priority) for name, priority in ((1, 1), (2, 0), (0, 0))]
    preempted: list[int] = []
    tokens_before: dict[int, list[int]] = {}
    while world.requests:
        before = {idx: list(request.tokens) for idx, request in world.requests.items()}
        for idx in world.step().preempted:
            preempted.append(idx)
            tokens_before[idx] = before[idx]
            assert world.requests[idx].tokens == before[idx]
            assert world.requests[idx].num_rows == 0
    assert preempted[:2] == [requests[0].id, requests[2].id]
    assert len(tokens_before[requests[0].id]) > 7  # it had emitted tokens, and kept them
    assert all(request.tokens == request.alone() for request in requests)
    world.assert_nothing_is_held()


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    """Freed pages are not given to newcomers in the same step: running requests may need them."""
    world = engine(num_pages=5, max_num_seqs=2, headroom=0)
    _, last = (world.add([name] * 7, max_tokens=9) for name in (1, 2))
    world.step()
    world.step()
    small = world.add([0], max_tokens=1, priority=-1)
    schedule = world.step()
    assert (schedule.preempted, schedule.admitted) == ((last.id,), ())
    assert world.step().admitted == (small.id,)


def test_what_a_preempted_request_computed_is_found_again_if_nobody_took_it() -> None:
    world = engine(num_pages=64)
    request = world.add([1] * 30, max_tokens=8)
    world.step()
    num_computed = world.num_computed
    world.scheduler._waiting.add(world.scheduler._leave(request.id))
    world.step()
    assert world.num_computed == num_computed + 1


def test_a_shared_prefix_counts_once_at_admission() -> None:
    """The first request holds 28 of 32 pages; the second shares most of them and needs few more."""
    world = engine(num_pages=32, max_num_batched_tokens=128, headroom=0)
    world.add([1] * 110, max_tokens=2)
    world.step()
    second = world.add([1] * 108, max_tokens=2)
    assert world.step().admitted == (second.id,)


def test_nobody_is_admitted_past_one_that_ranks_higher() -> None:
    """The small request would fit at once, but the large one came first."""
    world = engine(num_pages=8, headroom=0)
    first = world.add([1] * 14, max_tokens=6)
    world.step()
    large, small = world.add([2] * 24, max_tokens=2), world.add([0], max_tokens=2)
    while first.id in world.requests:
        assert world.step().admitted == ()
    assert world.step().admitted == (large.id, small.id)


def test_priority_goes_first() -> None:
    world = engine(max_num_seqs=1)
    ids = [world.add([1, name], 3, priority).id for name, priority in enumerate((1, 0, 2, -1))]
    run_to_end(world)
    assert [request.id for request in world.finished] == [ids[idx] for idx in (3, 1, 0, 2)]


@pytest.mark.parametrize("priority", [0, 1, 3])
def test_a_flood_of_better_priority_does_not_starve_anyone(priority: int) -> None:
    """Two newcomers a step want twice what the engine can do, for ever; a waiting request is still
    served after at most (priority + 1) · ageing steps of arrivals and their work."""
    ageing, work = 10, 3
    world = engine(max_num_seqs=1, ageing=ageing)
    patient = world.add([1], max_tokens=work, priority=priority)
    num_steps = 0
    while patient.id in world.requests:
        world.add([2], max_tokens=work, priority=-1)
        world.add([2], max_tokens=work, priority=0)
        world.step()
        num_steps += 1
        num_ahead = 2 * (priority + 1) * ageing + 2
        assert num_steps <= (num_ahead + 1) * (work + 1)
    assert patient.tokens == patient.alone()


@pytest.mark.parametrize(("prompt_len", "max_tokens"), [(30, 3), (1, 32), (33, 0)])
def test_more_than_the_context_is_refused(prompt_len: int, max_tokens: int) -> None:
    world = engine(max_model_len=32)
    with pytest.raises(RequestTooLarge, match="maximum context length is 32 tokens"):
        world.add([1] * prompt_len, max_tokens)
    world.assert_nothing_is_held()
    world.add([1] * 30, 2)


def test_more_than_the_whole_cache_is_refused() -> None:
    world = engine(num_pages=4, page_size=4)
    with pytest.raises(RequestTooLarge, match="need 5 pages and the whole cache has 4"):
        world.add([1] * 10, 7)
    world.assert_nothing_is_held()
    world.add([1] * 10, 6)
    run_to_end(world)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_num_seqs": 0},
        {"max_num_batched_tokens": 3, "max_num_seqs": 4},
        {"ageing": 0},
        {"max_model_len": True},
        {"headroom": -1},
    ],
)
def test_limits_that_cannot_work_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(InvalidOption):
        engine(**limits)


def test_a_request_can_leave_at_any_moment() -> None:
    world = engine(max_num_seqs=1)
    running, waiting, third = (world.add([name] * 9, max_tokens=9) for name in range(3))
    world.step()
    world.remove(waiting.id)
    world.remove(running.id)
    assert world.scheduler.remove(running.id) is False
    run_to_end(world)
    assert world.finished == [third]
    world.assert_nothing_is_held()


def test_a_second_request_computes_only_what_is_new() -> None:
    world = engine(num_pages=512, page_size=16, max_num_batched_tokens=256)
    prefix = [Random(0).randint(0, 2) for _ in range(1000)]
    world.add(prefix, max_tokens=3)
    run_to_end(world)
    num_computed = world.num_computed
    second = world.add([*prefix, *[1] * 20], max_tokens=1)
    run_to_end(world)
    assert world.num_computed - num_computed < 32
    assert second.tokens == second.alone()


@pytest.mark.parametrize("page_size", [4, 64])
def test_a_small_pool_serves_many(page_size: int) -> None:
    """Paged and slotted: 40 requests with guesses in room for two all end as if alone."""
    rng = Random(1)
    world = engine(num_pages=2 * 64 // page_size, page_size=page_size, headroom=0)
    requests: list[FakeRequest] = [
        world.add([rng.randint(0, 1) for _ in range(rng.randint(1, 30))], rng.randint(1, 30))
        for _ in range(40)
    ]
    while world.requests:
        world.step({idx: rng.randint(0, 6) for idx in world.requests}, rng)
    assert all(request.tokens == request.alone() for request in requests)
    world.assert_nothing_is_held()


INTEGERS_ONLY = ("scheduler", "next_pass", "limits", "pool", "queue")


@pytest.mark.parametrize("module", INTEGERS_ONLY)
def test_the_scheduler_knows_neither_arrays_nor_models(module: str) -> None:
    allowed = {f"forerun.engine.scheduling.{name}" for name in INTEGERS_ONLY}
    spec = importlib.util.find_spec(f"forerun.engine.scheduling.{module}")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    }
    ours = {name for name in imported if name and name.startswith("forerun")}
    assert ours <= allowed | {"forerun.errors", "forerun.option_checks"}
    assert not imported & {"numpy", "numba", "torch"}
