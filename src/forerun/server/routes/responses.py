"""`/v1/responses`: stateless, so clients send all items every time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from forerun.engine.api.async_engine import AsyncEngine
from forerun.server.answers.group import Group
from forerun.server.answers.responses import ResponseForm, named_events
from forerun.server.fields import LOGPROBS, Endpoint
from forerun.server.prompts import chat_prompt, conversation, truncated
from forerun.server.question import Question, answer_len, answer_room
from forerun.server.routes.asked import Given, answered, identity
from forerun.server.service import Service
from forerun.server.tools import calling_of


async def responses(request: Request) -> Response:
    return await answered(request, Endpoint.RESPONSES, _read, named_events)


def _read(
    given: Given, service: Service, engine: AsyncEngine
) -> tuple[Question, Callable[[Group], ResponseForm]]:
    max_len = engine.max_model_len
    kept = given.get("truncate_prompt_tokens", -1 if given.get("truncation") == "auto" else None)
    name = "max_output_tokens"
    room = answer_room(given.get(name), max_len, service.limits)
    calling = calling_of(given, engine)
    effort = given.get("reasoning", {}).get("effort")
    prompt, reply = chat_prompt({"messages": conversation(given)}, engine, calling, effort)
    prompt = truncated(prompt, kept, max_len, room)
    length = answer_len(given.get(name), name, prompt, max_len, service.limits)
    wants_logprobs = given.get("top_logprobs", 0) > 0 or LOGPROBS in given.get("include", ())
    num_logprobs = given.get("top_logprobs", 0) if wants_logprobs else None
    question = Question.of(given, [prompt], engine, [length], num_logprobs, reply=reply)
    return question, partial(
        ResponseForm,
        **identity(given, "resp_", service, engine),
        shows_logprobs=wants_logprobs,
        shows_trace=question.traces,
        given=given,
        reply=reply,
    )
