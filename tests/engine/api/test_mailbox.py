"""Mailboxes and bells that pass rounds from one thread to another thread's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forerun.engine.api.mailbox import Bell, Mailbox, ring


def run(body: Callable[[Bell], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await body(Bell(asyncio.get_running_loop()))

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_came_is_read_at_once_and_an_error_comes_last() -> None:
    async def body(bell: Bell) -> None:
        box = Mailbox[int](bell)
        assert box.read() == []
        news = [box.look()]
        for item in (1, 2, 3):
            box.put(item)
            news.append(box.look())
        assert box.read() == [1, 2, 3]
        assert [*news, box.look()] == [False, True, True, True, False]
        for item in (4, 5):
            box.put(item)
        box.fail(ValueError("late"))
        box.fail(KeyError("later"))
        assert box.read() == [4, 5]
        assert box.look()
        with pytest.raises(ValueError, match="late"):
            box.read()

    run(body)


def test_a_bell_that_rang_for_nobody_rings_again_for_who_looked_since() -> None:
    """A round may be read after it arrives and before its bell rings, while nobody waits; the next
    round must still wake the reader."""

    async def body(bell: Bell) -> None:
        box = Mailbox[int](bell)
        box.put(1)
        assert box.read()
        ring([bell])
        await asyncio.sleep(0)
        assert not box.look()
        waiting = asyncio.ensure_future(bell.wait())
        await asyncio.sleep(0)
        box.put(2)
        ring([bell])
        await asyncio.wait_for(waiting, 5)

    run(body)


def test_a_loop_is_woken_once_for_all_and_again_only_after_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(bell: Bell) -> None:
        other, calls = Bell(bell.loop), []
        box = Mailbox[int](bell)
        monkeypatch.setattr(bell.loop, "call_soon_threadsafe", lambda *call: calls.append(call))
        ring([bell, other])
        ring([bell, other, bell])
        assert len(calls) == 1
        box.read()
        ring([bell, other])
        assert len(calls) == 2

    run(body)


def test_all_who_wait_at_one_bell_look_again() -> None:
    async def reader(box: Mailbox[int], found: list[int]) -> None:
        while True:
            items = box.read()
            if not items:
                await box.bell.wait()
            found += items

    async def body(bell: Bell) -> None:
        boxes = [Mailbox[int](bell), Mailbox[int](bell)]
        found: list[list[int]] = [[], []]
        tasks = [asyncio.create_task(reader(*pair)) for pair in zip(boxes, found, strict=True)]
        for item, idx in enumerate((1, 0, 0, 1, 1)):
            await asyncio.sleep(0.001)  # both readers wait
            boxes[idx].put(item)
            await asyncio.to_thread(ring, [bell])
            await asyncio.sleep(0.001)
            assert found[idx][-1:] == [item]
        assert found == [[1, 2], [0, 3, 4]]
        for task in tasks:
            task.cancel()

    run(body)


def test_who_waits_is_woken_only_for_what_was_not_dealt_with() -> None:
    async def body(bell: Bell) -> None:
        dealt = [True, True, False]
        waiting = asyncio.create_task(bell.wait(lambda: dealt.pop(0)))
        await asyncio.sleep(0)
        for num_left in (2, 1, 0):
            assert not waiting.done()
            bell.wake()
            bell.wake() if num_left == 0 else None  # the waiter already wakes: not called again
            await asyncio.sleep(0)
            assert len(dealt) == num_left
        await waiting
        failing = asyncio.create_task(bell.wait(lambda: bool(dealt.pop())))
        await asyncio.sleep(0)
        bell.wake()
        with pytest.raises(IndexError):
            await failing

    run(body)
