"""A pass that was begun early is used only if it is the pass that is then asked for."""

from __future__ import annotations

import gc
import linecache
import os
import signal
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from types import FrameType

import numpy as np
import pytest

from forerun.kernels.cpu.runtime.workers import Workers
from forerun.sampling import Noise
from forerun.types import SamplingParams
from forerun.usable_cores import num_usable_cores
from tests.interrupting import at_every_line, files, lines_of
from tests.kernels_cpu.runtime.plain_decoding import DRAWN, GREEDY, SLOW, Decoding, Text
from tests.kernels_cpu.runtime.test_program import (
    finalizers_may_raise,
    freed_memory_is_overwritten,
)
from tests.models_llama.tiny import FAMILIES

pytestmark = pytest.mark.skipif(num_usable_cores() < 2, reason="one core has no other to begin on")

NUM_TOKENS = 12
PROMPT, OTHER, LONG = (5, 9, 3, 1), (8, 2), tuple(range(40))
RUNTIME = files(*(f"kernels/cpu/runtime/{n}.py" for n in ("replay", "following", "workers")))


class Counted:
    """Counts the passes that were begun early, and those of them that were finished or dropped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = self.finished = self.dropped = 0
        begin, finish, drop = Workers.begin, Workers.finish, Workers.drop

        def counted_begin(workers: Workers, *args: object) -> None:
            self.opened += 1
            begin(workers, *args)  # type: ignore[arg-type]

        def counted_finish(workers: Workers, *args: object) -> bool:
            is_finished = finish(workers, *args)  # type: ignore[arg-type]
            self.finished += is_finished
            return is_finished

        def counted_drop(workers: Workers) -> None:
            self.dropped += workers._is_begun
            drop(workers)

        monkeypatch.setattr(Workers, "begin", counted_begin)
        monkeypatch.setattr(Workers, "finish", counted_finish)
        monkeypatch.setattr(Workers, "drop", counted_drop)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    yield Counted(monkeypatch)
    gc.collect()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_one_pass_after_the_other_goes_on_by_itself(
    family: str, params: SamplingParams, counted: Counted
) -> None:
    def work(on: Decoding) -> list[list[int]]:
        text = on.text(PROMPT, params)
        on.go_on(1, text)  # it is recorded
        on.go_on(NUM_TOKENS, text)
        return [text.tokens]

    right = work(Decoding(is_early=False, config=FAMILIES[family]))
    assert counted.finished == 0
    decoding = Decoding(is_early=True, config=FAMILIES[family])
    assert work(decoding) == right
    assert (counted.opened, counted.finished, counted.dropped) == (1, NUM_TOKENS, 0)


def test_several_go_on_together_until_one_has_ended(counted: Counted) -> None:
    def work(on: Decoding) -> list[list[int]]:
        texts = [on.text(PROMPT), on.text(OTHER, DRAWN), on.text((4,) * 9)]
        for num in (3, 2):  # recorded and replayed; the rest goes on without the last
            on.go_on(NUM_TOKENS, *texts[:num])
        on.go_on(NUM_TOKENS, texts[1], texts[0])  # in another order
        return [text.tokens for text in texts]

    right = work(Decoding(is_early=False))
    decoding = Decoding(is_early=True)
    assert work(decoding) == right
    assert counted.dropped >= 2
    assert counted.finished == 3 * NUM_TOKENS - 2  # the first two of a kind are recorded


@pytest.mark.parametrize("family", ["smollm2", "odd"])
def test_hidden_states_are_those_of_the_pass_that_was_asked_for(
    family: str, counted: Counted
) -> None:
    def work(on: Decoding) -> list[list[float]]:
        on.tapped = (0, 2)
        texts = [on.text(PROMPT), on.text(OTHER, DRAWN)]
        on.go_on(NUM_TOKENS, *texts)
        on.go_on(NUM_TOKENS, texts[0])
        return on.taps

    right = work(Decoding(is_early=False, config=FAMILIES[family]))
    assert len(right) == 4 * NUM_TOKENS
    assert work(Decoding(is_early=True, config=FAMILIES[family])) == right
    assert counted.finished == 2 * NUM_TOKENS - 2


def test_whoever_comes_between_finds_nobody_at_work(counted: Counted) -> None:
    """In between come a prompt that is recorded, one too long for that, and rows that move."""

    def work(on: Decoding) -> list[list[int]]:
        text, found = on.text(PROMPT), list[list[int]]()
        for prompt in (OTHER, LONG, OTHER):
            on.go_on(3, text)
            other = on.text(prompt)
            on.go_on(3, text)
            slots = other.table.slots(other.table.length)
            on.kernels.move_rows(on.cache.store, slots[:1], slots[-1:])
            on.go_on(2, other)
            found.append(other.tokens)
        return [text.tokens, *found]

    right = work(Decoding(is_early=False))
    decoding = Decoding(is_early=True)
    assert work(decoding) == right
    assert counted.dropped >= 6


def test_another_token_than_the_one_that_was_drawn_is_another_pass(counted: Counted) -> None:
    def work(on: Decoding) -> list[list[int]]:
        text = on.text(PROMPT)
        for _ in range(4):
            on.go_on(3, text)
            text.tokens[-1] = (text.tokens[-1] + 1) % 90
        return [text.tokens]

    right = work(Decoding(is_early=False))
    decoding = Decoding(is_early=True)
    assert work(decoding) == right
    assert counted.dropped == 4 - 1  # the last is not asked for again


def test_other_noise_is_another_pass(counted: Counted) -> None:
    def work(on: Decoding) -> list[list[int]]:
        text = on.text(PROMPT, DRAWN)
        for seed in range(4):
            text.noise = Noise(seed)
            on.go_on(3, text)
        return [text.tokens]

    right = work(Decoding(is_early=False))
    decoding = Decoding(is_early=True)
    assert work(decoding) == right
    assert counted.dropped == 4 - 1


def test_another_store_is_another_pass(counted: Counted) -> None:
    decoding = Decoding(is_early=True)
    caches = [decoding.new_cache() for _ in range(2)]
    texts = list[Text]()
    for cache in caches:
        decoding.cache = cache
        texts.append(decoding.text(PROMPT))
        decoding.go_on(2, texts[-1])
    for _ in range(NUM_TOKENS):
        for decoding.cache, text in zip(caches, texts, strict=True):
            decoding.go_on(1, text)
    for decoding.cache, text in zip(caches, texts, strict=True):
        decoding.go_on(NUM_TOKENS, text)
    assert texts[0].tokens == texts[1].tokens
    assert counted.dropped >= 2 * NUM_TOKENS - 1


def test_a_twin_with_rows_of_its_own_is_another_pass(counted: Counted) -> None:
    decoding = Decoding(is_early=True)
    first, twin = decoding.text(PROMPT), decoding.text(PROMPT)
    for _ in range(NUM_TOKENS):
        decoding.go_on(1, first)
        decoding.go_on(1, twin)
    decoding.go_on(NUM_TOKENS, first)
    decoding.go_on(NUM_TOKENS, twin)
    assert first.tokens == twin.tokens
    assert counted.dropped >= NUM_TOKENS


def test_a_row_that_is_left_to_the_host_is_not_gone_on_from(counted: Counted) -> None:
    decoding = Decoding(is_early=True)
    text = decoding.text(PROMPT)
    decoding.go_on(3, text)
    before, store = counted.finished, decoding.cache.store
    store.v[:, :, text.table.slots(1)] = np.nan
    decoding.kernels.move_rows(store, *[text.table.slots(1)] * 2)  # nothing is under way
    scores = decoding.step(text)
    assert scores.tokens == [None]
    assert np.isnan(scores.row(0)).any()
    assert counted.finished == before + 1
    assert not decoding.kernels._workers._is_begun
    text.tokens.append(1)
    assert decoding.step(text).tokens == [None]
    assert counted.opened == 3  # it had to be begun again


def test_memory_that_a_pass_works_on_outlives_it() -> None:
    decoding = Decoding(is_early=True, config=SLOW)
    right = _some_tokens(decoding)
    with freed_memory_is_overwritten():
        for _ in range(20):
            rows = weakref.ref(decoding.cache.store.k)
            decoding.new_cache()  # the old one goes while a pass over it is in flight
            gc.collect()
            assert rows() is None
            assert _some_tokens(decoding) == right
    del decoding
    gc.collect()


def _some_tokens(decoding: Decoding) -> list[int]:
    text = decoding.text([*range(90), *range(70)])  # its slots are more than numpy keeps for itself
    decoding.go_on(4, text)
    return text.tokens


def test_threads_that_nobody_comes_back_to_go_to_sleep() -> None:
    decoding = Decoding(is_early=True)
    decoding.go_on(4, decoding.text(PROMPT))
    calls = decoding.kernels._workers._calls
    deadline = time.monotonic() + 30
    while not all(each.empty() for each in calls):  # taken by a thread that waits for the next
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_off_goes_on_without_threads() -> None:
    decoding = Decoding(is_early=True, config=SLOW)
    text = decoding.text(PROMPT)
    decoding.go_on(4, text)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends a child that waits for threads
        if decoding.kernels._workers._is_begun:
            os._exit(255)
    decoding.go_on(4, text)
    if child == 0:
        os._exit(sum(text.tokens) % 251)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == sum(text.tokens) % 251


def test_an_exception_at_any_line_leaves_nobody_at_work_on_freed_memory() -> None:
    decoding = Decoding(is_early=True, config=SLOW)

    def work() -> list[int]:
        decoding.new_cache()
        return _some_tokens(decoding)

    right, rng = work(), Random(3)
    passed = Counter(place for place in lines_of(work, RUNTIME) if not _is_with(*place))
    with freed_memory_is_overwritten(), finalizers_may_raise():
        for (filename, line), num_times in passed.items():
            left = rng.randrange(num_times)

            def at(frame: FrameType, line: int = line) -> None:
                nonlocal left
                if frame.f_lineno == line:
                    left -= 1
                    if left < 0:
                        raise KeyboardInterrupt

            with suppress(KeyboardInterrupt), at_every_line(frozenset([filename]), at):
                work()
            gc.collect()
            assert work() == right, (filename, line)


def test_a_store_that_goes_at_any_line_changes_no_token() -> None:
    """Garbage may be collected at any line; a store that goes with it drops the begun pass."""
    decoding = Decoding(is_early=True)
    workers = decoding.kernels._workers

    def work() -> list[int]:
        text = decoding.text(PROMPT)
        decoding.go_on(6, text)
        text.table.free()
        return text.tokens

    right = work()
    places = lines_of(work, RUNTIME)
    assert len(places) > 200
    for number in range(len(places)):
        left = number

        def at(_frame: FrameType) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                workers.drop()

        with at_every_line(RUNTIME, at):
            assert work() == right, places[number]


def _is_with(filename: str, line: int) -> bool:
    """Whether the line says `with`: there the lock would stay taken, see `test_program`."""
    return linecache.getline(filename, line).strip().startswith("with ")
