"""`AsyncEngine`: many asyncio callers, one engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack
from weakref import finalize, ref

from forerun.engine.api.engine_thread import EngineThread, Post
from forerun.engine.api.events import EventBuilder, StreamEvent
from forerun.engine.api.llm import LLM
from forerun.engine.api.mailbox import Bell, Deal, Mailbox, ring
from forerun.engine.api.outputs import RequestOutput
from forerun.engine.api.prompt import Prompt, as_prompt, params_for
from forerun.engine.request.options import RequestKeywords, RequestOptions
from forerun.engine.request.request import Request
from forerun.errors import InvalidOption
from forerun.models.text.tokenizer import Tokenizer
from forerun.option_checks import is_finite, require, require_whole
from forerun.replies import Conversations
from forerun.speculation.speculation import Speculation
from forerun.tools import Toolbox
from forerun.types import SamplingParams


class AsyncEngine:
    """Serves an `LLM` to many callers at once; one thread runs all its steps.

        async with AsyncEngine(LLM("smollm2-135m")) as engine:
            async for event in engine.stream("Once upon a time"):
                print(event.text, end="")

    Up to `max_num_waiting` requests wait beside the `max_num_seqs` that run; further ones raise
    `EngineOverloaded`. A step that takes longer than `step_timeout_s` ends all streams with
    `EngineHung`; None means no limit. With `tries_grammars`, each new grammar of structured outputs
    is first tried in a process of its own, as hostile ones from unknown callers could end this one.
    Until the engine is closed, the `LLM` itself takes no requests. An engine that is dropped,
    together with its answers, closes by itself.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        max_num_waiting: int = 256,
        step_timeout_s: float | None = 300.0,
        tries_grammars: bool = False,
    ) -> None:
        require_whole("max_num_waiting", max_num_waiting, least=0)
        good = step_timeout_s is None or (is_finite(step_timeout_s) and step_timeout_s > 0)
        require(good, "step_timeout_s", step_timeout_s, "a finite number > 0, or None")
        require(isinstance(llm, LLM), "llm", llm, "an LLM")
        self._llm = llm
        llm.in_use()  # this ends requests whose callers are gone
        with llm.engine.lock:  # so that no request comes between the check and the claim
            if llm.engine.owner is not None or not llm.engine.is_idle:
                raise InvalidOption("this model still answers somebody else; let that end first.")
            self._max_num_open = llm.max_num_seqs + max_num_waiting
            self._thread = EngineThread(llm.engine, self._max_num_open, step_timeout_s)
            finalize(self, self._thread.abandon)
        if tries_grammars:
            llm.grammars.try_first()

    @property
    def tokenizer(self) -> Tokenizer:
        return self._llm.tokenizer

    @property
    def toolbox(self) -> Toolbox:
        return self._llm.toolbox

    @property
    def conversations(self) -> Conversations:
        return self._llm.conversations

    @property
    def max_model_len(self) -> int:
        return self._llm.max_model_len

    @property
    def max_num_open(self) -> int:
        """How many requests may run or wait at once."""
        return self._max_num_open

    @property
    def speculation(self) -> Speculation | None:
        """The engine's speculation, for inspection only."""
        return self._llm.engine.core.speculation

    @property
    def is_healthy(self) -> bool:
        """False while a step hangs, and once the engine is closed."""
        return self._thread.is_healthy

    def metrics(self) -> dict[str, Any]:
        """Return what the engine has counted so far; see docs/scheduling.md."""
        return self._llm.metrics()

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        **options: Unpack[RequestKeywords],
    ) -> Answer:
        """Stream one answer. The request is queued at once; one that cannot run raises here."""
        (params,) = params_for(1, sampling_params)
        if params.n != 1:
            raise InvalidOption(f"n={params.n} is not allowed in a stream; ask for one answer.")
        (answer,) = self.ask(prompt, params, **options)
        return answer

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        **options: Unpack[RequestKeywords],
    ) -> RequestOutput:
        """Return all answers to one prompt, once they are complete."""
        (params,) = params_for(1, sampling_params)
        answers = self.ask(prompt, params, whole=True, **options)
        try:
            for answer in answers:
                async for _ in answer:
                    pass
        finally:
            for answer in answers:
                answer.cancel()
        return RequestOutput.of(as_prompt(prompt), [answer.request for answer in answers])

    async def reset_prefix_cache(self) -> None:
        """Forget the rows of finished requests, so that the next prompt is computed whole."""
        await asyncio.to_thread(self._llm.reset_prefix_cache)

    async def drain(self) -> None:
        """Take no more requests, and wait until those that were taken have ended."""
        self._thread.refuse("the engine is about to close and takes no more requests.")
        await asyncio.to_thread(self._thread.wait_until_empty)

    async def shutdown(self, *, finish: bool = True) -> None:
        """Close the engine, after all requests have ended; without `finish` at once, so that open
        requests end with `EngineClosed`."""
        try:
            if finish:
                await self.drain()
        finally:  # also if the task that waits here is cancelled
            self._thread.begin_to_close()
            self._llm.grammars.interrupt()
        await asyncio.to_thread(self._thread.wait_until_closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown(finish=kind is None)

    def ask(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        whole: bool = False,
        **options: Unpack[RequestKeywords],
    ) -> Sequence[Answer]:
        """Queue one request for each of the `n` answers, all or none; `whole` as in `take`."""
        return self.take(self.requests(prompt, params, **options), whole=whole)

    def requests(
        self, prompt: Prompt, params: SamplingParams, **options: Unpack[RequestKeywords]
    ) -> list[Request]:
        """Return the requests that `take` queues; one that cannot run raises here.

        This takes long for a long text, and may be done in any thread.
        """
        checked = RequestOptions.of(options)
        requests = self._llm.input_processor.requests(prompt, params, checked)
        self._llm.engine.check(requests)
        return requests

    def take(self, requests: Sequence[Request], *, whole: bool = False) -> Sequence[Answer]:
        """Queue these requests, all or none; return an answer to each, as a stream.

        With `whole`, an answer has at most two events, and the last brings all that the first did
        not, except for the rounds in between.
        """
        bell = Bell(asyncio.get_running_loop())
        posts = [Post(r, Mailbox(bell), EventBuilder(whole=whole)) for r in requests]
        answers = [Answer(post, self._thread, self) for post in posts]
        for post, answer in zip(posts, answers, strict=True):
            post.request.asker = ref(answer)  # once the answer is dropped, the request is forsaken
        self._thread.ask(posts)
        return answers


class Answer(AsyncIterator[StreamEvent]):
    """The events of one request, which is cancelled when the stream is left, closed or dropped.

    async with engine.stream("Once upon a time") as answer:
        async for event in answer:
            if enough(event):
                break
    """

    def __init__(self, post: Post, thread: EngineThread, engine: AsyncEngine) -> None:
        self.request = post.request
        self._mailbox = post.mailbox
        self._event_builder = post.event_builder
        self._thread = thread
        self._engine = engine  # keeps the engine open while this answer is in use
        self.is_over = False  # nothing more will be read

    async def __anext__(self) -> StreamEvent:
        try:
            while (event := self.read()) is None and not self.is_over:
                await self.news()
        except BaseException:  # the request failed, or the reading task was cancelled
            self.cancel()
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    def read(self) -> StreamEvent | None:
        """Return what has arrived since the last read as one event, without waiting; None if
        nothing has."""
        if self.is_over:
            return None
        rounds = self._mailbox.read()
        if not rounds:
            return None
        event = StreamEvent.joined([self._event_builder.event(done) for done in rounds])
        self.is_over = event.output is not None
        return event

    def look(self) -> bool:
        """Whether there is something to read: rounds, an error, or the end."""
        return self.is_over or self._mailbox.look()

    async def news(self, deal: Deal | None = None) -> None:
        """Wait until this answer, or another one taken with it, has news that `deal` has not dealt
        with: see `Bell.wait`."""
        await self._mailbox.bell.wait(deal)

    def cancel(self) -> None:
        """Cancel the request: a task that reads this answer reaches its end, and the pages of the
        request are free before the next step."""
        if self.is_over:
            return
        self.is_over = True
        ring([self._mailbox.bell])  # a task that waits in `news` looks again
        self._thread.leave(self.request)

    async def aclose(self) -> None:
        self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()
