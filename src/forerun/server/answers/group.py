"""All answers to one HTTP request, as their deltas come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from weakref import ref

from forerun.engine.api.async_engine import Answer
from forerun.engine.request.request import Request
from forerun.server.answers.delta import Delta, Telling
from forerun.server.answers.usage import usage
from forerun.server.errors import ApiError


class Group:
    """`num_choices` answers to each prompt, numbered through.

    A reader that is slow gets fewer and larger deltas: the queue holds one for each answer, and
    what comes meanwhile waits in the answer's own mailbox, joined. `close` ends what still runs.
    """

    def __init__(self, answers: Sequence[Answer], num_choices: int, timeout_s: float) -> None:
        self._tellings = [Telling(index, answer) for index, answer in enumerate(answers)]
        self.num_choices = num_choices
        self._timeout_s = timeout_s
        self._is_late = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_s, _expire, ref(self))  # does not keep it alive
        self._num_told = 0
        self._pumps: list[asyncio.Task[None]] = []
        self._error: Exception | None = None
        self.on_delta: Callable[[Delta], None] | None = None  # who watches what is read

    @property
    def requests(self) -> list[Request]:
        return [telling.answer.request for telling in self._tellings]

    @property
    def usage(self) -> dict[str, Any]:
        return usage(self.requests, self.num_choices, self._num_told)

    async def deltas(self) -> AsyncIterator[Delta]:
        """As they come, in any order of the answers, until all have ended or one failed."""
        news = self._one() if len(self._tellings) == 1 else self._many()
        try:
            async for delta in news:
                self._num_told += len(delta.tokens)
                if self.on_delta is not None:
                    self.on_delta(delta)
                yield delta
            if self._is_late:
                raise self._too_late()
        finally:
            self.close()

    async def whole(self) -> list[Delta]:
        """Each answer as one delta."""
        found: dict[int, Delta] = {}
        async for delta in self.deltas():
            earlier = found.get(delta.index)
            found[delta.index] = delta if earlier is None else earlier.followed_by(delta)
        return [found[index] for index in range(len(self._tellings))]

    def close(self) -> None:
        """Nobody reads any more: what the answers hold is free before the next step."""
        self._timer.cancel()
        for pump in self._pumps:
            pump.cancel()
        for telling in self._tellings:
            telling.answer.cancel()

    def expire(self) -> None:
        """End those that still run; one that has ended may still be read."""
        for telling in self._tellings:
            if telling.answer.request.finish_reason is None:
                self._is_late = True
                telling.answer.cancel()

    async def _one(self) -> AsyncIterator[Delta]:
        (telling,) = self._tellings
        async for event in telling.answer:
            yield telling.delta(event)

    async def _many(self) -> AsyncIterator[Delta]:
        news: asyncio.Queue[Delta | None] = asyncio.Queue(len(self._tellings))
        self._pumps = [asyncio.create_task(self._pump(one, news)) for one in self._tellings]
        num_open = len(self._tellings)
        while num_open:
            delta = await news.get()
            if self._error is not None:
                raise self._error
            if delta is None:
                num_open -= 1
            else:
                yield delta

    async def _pump(self, telling: Telling, news: asyncio.Queue[Delta | None]) -> None:
        try:
            async for event in telling.answer:
                await news.put(telling.delta(event))
        except Exception as error:
            self._error = self._error or error
        await news.put(None)

    def _too_late(self) -> ApiError:
        return ApiError(
            504,
            f"the answer took longer than {self._timeout_s:g} s; ask for less, "
            f"or raise --request-timeout.",
            "request_timeout",
        )


def _expire(group: ref[Group]) -> None:
    if (found := group()) is not None:
        found.expire()
