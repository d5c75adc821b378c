"""Events from one thread to another's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from forerun.engine.api.events import StreamEvent
from forerun.engine.api.mailbox import Bell, Mailbox, ring
from forerun.engine.step import Round


def event_of(token: int) -> StreamEvent:
    return StreamEvent((), (token,), (), cast(Round, token), None)


def run(body: Callable[[Bell], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await body(Bell(asyncio.get_running_loop()))

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_came_is_joined_and_an_error_comes_last() -> None:
    async def body(bell: Bell) -> None:
        box = Mailbox(bell)
        assert box.read() is None
        news = [box.look()]
        for token in (1, 2, 3):
            box.put(event_of(token))
            news.append(box.look())
        event = box.read()
        assert event is not None
        assert [*news, box.look()] == [False, True, True, True, False]
        for token in (1, 2, 3):
            box.put(event_of(token))
        box.fail(ValueError("late"))
        box.fail(KeyError("later"))
        event = box.read()
        assert box.look()
        assert event is not None
        assert event.tokens == (1, 2, 3)
        with pytest.raises(ValueError, match="late"):
            box.read()

    run(body)


def test_a_bell_that_rang_for_nobody_rings_again_for_who_looked_since() -> None:
    """An event may be read between its coming and the bell, while nobody waits."""

    async def body(bell: Bell) -> None:
        box = Mailbox(bell)
        box.put(event_of(1))
        assert box.read() is not None
        ring([bell])
        await asyncio.sleep(0)
        assert not box.look()
        waiting = asyncio.ensure_future(bell.wait())
        await asyncio.sleep(0)
        box.put(event_of(2))
        ring([bell])
        await asyncio.wait_for(waiting, 5)

    run(body)


def test_a_loop_is_woken_once_for_all_and_again_only_after_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(bell: Bell) -> None:
        other, calls = Bell(bell.loop), []
        box = Mailbox(bell)
        monkeypatch.setattr(bell.loop, "call_soon_threadsafe", lambda *call: calls.append(call))
        ring([bell, other])
        ring([bell, other, bell])
        assert len(calls) == 1
        box.read()
        ring([bell, other])
        assert len(calls) == 2

    run(body)


def test_all_who_wait_at_one_bell_look_again() -> None:
    async def reader(box: Mailbox, found: list[int]) -> None:
        while True:
            event = box.read()
            if event is None:
                await box.bell.wait()
            else:
                found += event.tokens

    async def body(bell: Bell) -> None:
        boxes = [Mailbox(bell), Mailbox(bell)]
        found: list[list[int]] = [[], []]
        tasks = [asyncio.create_task(reader(*pair)) for pair in zip(boxes, found, strict=True)]
        for token, idx in enumerate((1, 0, 0, 1, 1)):
            await asyncio.sleep(0.001)  # both wait
            boxes[idx].put(event_of(token))
            await asyncio.to_thread(ring, [bell])
            await asyncio.sleep(0.001)
            assert found[idx][-1:] == [token]
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
            bell.wake() if num_left == 0 else None  # once it is on its way, nothing is called
            await asyncio.sleep(0)
            assert len(dealt) == num_left
        await waiting
        failing = asyncio.create_task(bell.wait(lambda: bool(dealt.pop())))
        await asyncio.sleep(0)
        bell.wake()
        with pytest.raises(IndexError):
            await failing

    run(body)
