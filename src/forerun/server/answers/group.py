"""All answers to one HTTP request, read as deltas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from weakref import ref

from forerun.engine.api.async_engine import Answer
from forerun.engine.request.request import Request
from forerun.replies import Reasoning
from forerun.server.answers.delta import Delta, Telling
from forerun.server.answers.usage import usage
from forerun.server.errors import ApiError

Take = Callable[[list[Delta]], bool]  # whether it sent them itself


class Group:
    """`num_choices` answers to each prompt, numbered consecutively.

    A slow reader gets fewer and larger deltas, as each answer's mailbox joins what waits in it.
    `close` cancels what still runs. With `hides_answers` deltas have no text, only the end: the
    client asked for 0 tokens.
    """

    def __init__(
        self,
        answers: Sequence[Answer],
        num_choices: int,
        timeout_s: float,
        *,
        hides_answers: bool = False,
        reasoning: Reasoning | None = None,
    ) -> None:
        self._tellings = [Telling(index, answer) for index, answer in enumerate(answers)]
        self._running = self._tellings  # those of which more may be read
        self._error: Exception | None = None  # of the first that failed
        self._hides_answers = hides_answers
        self.reasoning = reasoning
        self.num_choices = num_choices
        self._timeout_s = timeout_s
        self._is_late = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_s, _expire, ref(self))  # `ref`: not kept alive
        self._num_told = 0
        self.on_delta: Callable[[Delta], None] | None = None  # gets all that is read

    @property
    def requests(self) -> list[Request]:
        return [telling.answer.request for telling in self._tellings]

    @property
    def usage(self) -> dict[str, Any]:
        return usage(self.requests, self.num_choices, self._num_told, self.reasoning)

    def usage_of(self, delta: Delta) -> dict[str, Any]:
        """Return the usage of the delta's answer alone, up to and including the delta."""
        num_told = delta.num_before + len(delta.tokens)
        return usage([self._tellings[delta.index].answer.request], 1, num_told, self.reasoning)

    @property
    def num_generated(self) -> int:
        """Tokens of all answers so far, sent or not."""
        return 0 if self._hides_answers else sum(len(request.output) for request in self.requests)

    async def news(self, take: Take | None = None) -> AsyncIterator[list[Delta]]:
        """Yield what was added to the answers, until all have ended or one has failed. All that one
        engine step adds comes as one list.

        Deltas that arrive while the caller waits are offered to `take` first, and are yielded only
        if it does not take them.
        """
        untaken = list[Delta]()

        def deal() -> bool:
            nonlocal untaken
            untaken = self._read()
            if take is None or self._error is not None or not self._running:
                return False
            return not untaken or take(untaken)

        try:
            while untaken or self._running:
                if deltas := untaken or self._read():
                    untaken = []
                    yield deltas
                if self._error is not None:
                    raise self._error
                if self._running and not any(one.answer.look() for one in self._running):
                    await self._running[0].answer.news(deal)
            if not all(one.has_ended for one in self._tellings):
                raise self._too_late() if self._is_late else _left()
        finally:
            self.close()

    def _read(self) -> list[Delta]:
        """Return the new deltas. An answer that fails does not cost the others theirs."""
        deltas = list[Delta]()
        for one in self._running:
            try:
                delta = one.read()
            except Exception as failed:
                self._error = self._error or failed
                continue
            if delta is None:
                continue
            if self._hides_answers:
                delta = delta.without_output()
            self._num_told += len(delta.tokens)
            if self.on_delta is not None:
                self.on_delta(delta)
            deltas.append(delta)
        self._running = [one for one in self._running if not one.answer.is_over]
        return deltas

    async def whole(self) -> list[Delta]:
        """Wait for the end, and return one delta for each answer."""
        found: list[list[Delta]] = [[] for _ in self._tellings]
        async for deltas in self.news():
            for delta in deltas:
                found[delta.index].append(delta)
        return list(map(Delta.joined, found))

    def close(self) -> None:
        """Cancel what still runs; its cache pages are free before the next step."""
        self._timer.cancel()
        for telling in self._tellings:
            telling.answer.cancel()

    def expire(self) -> None:
        """Cancel the answers that still run; those that have ended can still be read."""
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


def _left() -> ApiError:
    return ApiError(499, "the client left before the answer was there.", "left")


def _expire(group: ref[Group]) -> None:
    if (found := group()) is not None:
        found.expire()
