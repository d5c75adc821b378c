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

    A reader that is slow gets fewer and larger deltas: what comes meanwhile waits in the answer's
    own mailbox, joined. `close` ends what still runs. With `hides_answers` only that they ended is
    told: what was wanted is their prompts.
    """

    def __init__(
        self,
        answers: Sequence[Answer],
        num_choices: int,
        timeout_s: float,
        *,
        hides_answers: bool = False,
    ) -> None:
        self._tellings = [Telling(index, answer) for index, answer in enumerate(answers)]
        self._hides_answers = hides_answers
        self.num_choices = num_choices
        self._timeout_s = timeout_s
        self._is_late = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_s, _expire, ref(self))  # does not keep it alive
        self._num_told = 0
        self.on_delta: Callable[[Delta], None] | None = None  # who watches what is read

    @property
    def requests(self) -> list[Request]:
        return [telling.answer.request for telling in self._tellings]

    @property
    def usage(self) -> dict[str, Any]:
        return usage(self.requests, self.num_choices, self._num_told)

    @property
    def num_generated(self) -> int:
        """Tokens of all answers so far, whether they were told or not."""
        return 0 if self._hides_answers else sum(len(request.output) for request in self.requests)

    async def news(self) -> AsyncIterator[list[Delta]]:
        """What came to any of the answers since the last time, until all have ended or one failed.
        A step of the engine brings news once, however many answers it served."""
        running = self._tellings
        try:
            while running:
                deltas, error = _read(running)
                running = [one for one in running if not one.answer.is_over]
                if self._hides_answers:
                    deltas = [delta.without_output() for delta in deltas]
                for delta in deltas:
                    self._num_told += len(delta.tokens)
                    if self.on_delta is not None:
                        self.on_delta(delta)
                if deltas:
                    yield deltas
                if error is not None:
                    raise error
                if running and not any(one.answer.look() for one in running):
                    await running[0].answer.news()
            if not all(one.has_ended for one in self._tellings):
                raise self._too_late() if self._is_late else _left()
        finally:
            self.close()

    async def whole(self) -> list[Delta]:
        """Each answer as one delta."""
        found: dict[int, Delta] = {}
        async for deltas in self.news():
            for delta in deltas:
                earlier = found.get(delta.index)
                found[delta.index] = delta if earlier is None else earlier.followed_by(delta)
        return [found[index] for index in range(len(self._tellings))]

    def close(self) -> None:
        """Nobody reads any more: what the answers hold is free before the next step."""
        self._timer.cancel()
        for telling in self._tellings:
            telling.answer.cancel()

    def expire(self) -> None:
        """End those that still run; one that has ended may still be read."""
        for telling in self._tellings:
            if telling.answer.request.finish_reason is None:
                self._is_late = True
                telling.answer.cancel()

    def _too_late(self) -> ApiError:
        return ApiError(
            504,
            f"the answer took longer than {self._timeout_s:g} s; ask for less, "
            f"or raise --request-timeout.",
            "request_timeout",
        )


def _read(tellings: Sequence[Telling]) -> tuple[list[Delta], Exception | None]:
    """What came to each, and the first that failed: it takes nothing from those before it."""
    deltas, error = list[Delta](), None
    for one in tellings:
        try:
            delta = one.read()
        except Exception as failed:
            error = error or failed
        else:
            if delta is not None:
                deltas.append(delta)
    return deltas, error


def _left() -> ApiError:
    return ApiError(499, "the client left before the answer was there.", "left")


def _expire(group: ref[Group]) -> None:
    if (found := group()) is not None:
        found.expire()
