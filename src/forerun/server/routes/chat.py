"""`/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from forerun.engine.api.async_engine import AsyncEngine
from forerun.replies import WORDS_ALONE
from forerun.server.answers.chat import ChatForm
from forerun.server.answers.group import Group
from forerun.server.errors import bad_request
from forerun.server.fields import Endpoint
from forerun.server.prompts import chat_prompt, truncated
from forerun.server.question import Question, answer_len, answer_room
from forerun.server.routes.asked import Given, answered, identity
from forerun.server.routes.completions import shown
from forerun.server.service import Service
from forerun.server.streaming import data_events
from forerun.server.tools import calling_of


async def chat_completions(request: Request) -> Response:
    return await answered(request, Endpoint.CHAT, _read, data_events)


def _read(
    given: Given, service: Service, engine: AsyncEngine
) -> tuple[Question, Callable[[Group], ChatForm]]:
    max_len, kept = engine.max_model_len, given.get("truncate_prompt_tokens")
    name = "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens"
    room = answer_room(given.get(name), max_len, service.limits)
    calling = calling_of(given, engine)
    prompt, reply = chat_prompt(given, engine, calling, given.get("reasoning_effort"))
    prompt = truncated(prompt, kept, max_len, room)
    length = answer_len(given.get(name), name, prompt, max_len, service.limits)
    num_logprobs = _num_logprobs(given)
    question = Question.of(given, [prompt], engine, [length], num_logprobs, reply=reply)
    if given.get("reasoning_format") == "none":
        if calling is not None:
            raise bad_request(
                "reasoning_format=none cannot go with tools, which it may speak of; drop one.",
                "reasoning_format",
            )
        reply = WORDS_ALONE
    who = identity(given, "chatcmpl-", service, engine)
    shows = given.get("include_reasoning", True)
    return question, partial(ChatForm, **who, **shown(given), reply=reply, shows_reasoning=shows)


def _num_logprobs(given: Given) -> int | None:
    wanted = given.get("logprobs", False)
    if given.get("top_logprobs") and not wanted:
        raise bad_request("top_logprobs needs logprobs=true; add it.", "top_logprobs")
    return given.get("top_logprobs", 0) if wanted else None
