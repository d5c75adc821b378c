"""News of an answer: taken at once by a reader that keeps up, else told to its task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forerun.engine.api.async_engine import Answer
from forerun.engine.api.engine_thread import Post
from forerun.engine.api.events import StreamEvent
from forerun.engine.api.mailbox import Bell, Mailbox, ring
from forerun.engine.api.outputs import CompletionOutput
from forerun.server.answers.delta import Delta
from forerun.server.answers.group import Group

ENDED = CompletionOutput(0, "", (), "stop", None, 0, (), None, {})


class Source:
    """Two answers that share a bell, and a stand-in for the engine's thread."""

    def __init__(self) -> None:
        self.bell = Bell(asyncio.get_running_loop())
        self.boxes = [Mailbox[Any](self.bell), Mailbox[Any](self.bell)]
        thread = cast(Any, SimpleNamespace(leave=lambda _request: None))
        request = cast(Any, SimpleNamespace(params=SimpleNamespace(logprobs=None)))
        builder = cast(Any, SimpleNamespace(event=lambda event: event))  # rounds are events already
        posts = [Post(request, box, builder) for box in self.boxes]
        answers = [Answer(post, thread, cast(Any, None)) for post in posts]
        self.group = Group(answers, 1, timeout_s=60.0)

    async def step(self, **tokens: int) -> None:
        """Give a token to each named answer; a negative token is its last."""
        for name, token in tokens.items():
            output = ENDED if token < 0 else None
            event = StreamEvent((), (abs(token),), (), cast(Any, None), output)
            self.boxes[int(name[1:])].put(event)
        await asyncio.to_thread(ring, [self.bell])
        await asyncio.sleep(0.005)


class Reader:
    """Records which deltas were `taken` at once and which were `told` to the task."""

    def __init__(self) -> None:
        self.keeps_up = True
        self.fails = False
        self.taken: list[list[int]] = []
        self.told: list[list[int]] = []

    def take(self, deltas: list[Delta]) -> bool:
        if self.fails:
            raise ValueError("odd")
        if self.keeps_up:
            self.taken.append([token for delta in deltas for token in delta.tokens])
        return self.keeps_up

    async def read(self, group: Group) -> None:
        async for deltas in group.news(self.take):
            self.told.append([token for delta in deltas for token in delta.tokens])


def run(body: Callable[[Source, Reader], Any]) -> None:
    async def main() -> None:
        await body(Source(), Reader())

    asyncio.run(asyncio.wait_for(main(), 30))


def test_who_keeps_up_takes_all_but_the_end() -> None:
    async def body(source: Source, reader: Reader) -> None:
        reading = asyncio.create_task(reader.read(source.group))
        await asyncio.sleep(0)
        await source.step(a0=1, a1=2)
        await source.step(a1=3)
        await source.step(a0=-4)
        await source.step(a1=-5)
        await reading
        assert reader.taken == [[1, 2], [3], [4]]
        assert reader.told == [[5]]

    run(body)


def test_nothing_is_lost_or_said_twice_where_a_reader_is_behind_for_a_while() -> None:
    async def body(source: Source, reader: Reader) -> None:
        reading = asyncio.create_task(reader.read(source.group))
        await asyncio.sleep(0)
        for token, keeps_up in enumerate((True, False, False, True, False, True), start=1):
            reader.keeps_up = keeps_up
            await source.step(a0=token)
        await source.step(a0=-7, a1=-8)
        await reading
        assert reader.taken == [[1], [4], [6]]
        assert reader.told == [[2], [3], [5], [7, 8]]

    run(body)


def test_what_fails_while_news_are_taken_reaches_who_waits() -> None:
    async def body(source: Source, reader: Reader) -> None:
        reader.fails = True
        reading = asyncio.create_task(reader.read(source.group))
        await asyncio.sleep(0)
        await source.step(a0=1)
        with pytest.raises(ValueError, match="odd"):
            await reading

    run(body)


def test_an_error_of_one_answer_comes_behind_what_the_other_said() -> None:
    async def body(source: Source, reader: Reader) -> None:
        reading = asyncio.create_task(reader.read(source.group))
        await asyncio.sleep(0)
        source.boxes[0].fail(ValueError("late"))
        await source.step(a1=1)
        with pytest.raises(ValueError, match="late"):
            await reading
        assert (reader.taken, reader.told) == ([], [[1]])

    run(body)
