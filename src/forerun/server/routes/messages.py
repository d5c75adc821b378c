"""Anthropic's `/v1/messages`, and its count of prompt tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forerun.engine.api.async_engine import AsyncEngine
from forerun.replies import ReplyForm
from forerun.server.answers.group import Group
from forerun.server.answers.messages import PING, MessageForm, message_events
from forerun.server.fields import Endpoint
from forerun.server.messages import as_chat
from forerun.server.prompts import Tokens, chat_prompt, truncated
from forerun.server.question import Question, answer_len, answer_room
from forerun.server.routes.asked import Given, answered, identity, made_of
from forerun.server.service import Service
from forerun.server.streaming import JsonAnswer
from forerun.server.tools import calling_of


async def messages(request: Request) -> Response:
    return await answered(request, Endpoint.MESSAGES, _read, message_events, PING)


async def count_tokens(request: Request) -> Response:
    """Count the prompt tokens of a message request."""
    return await made_of(request, Endpoint.COUNT_TOKENS, _counted)


def _read(
    given: Given, service: Service, engine: AsyncEngine
) -> tuple[Question, Callable[[Group], MessageForm]]:
    max_len, name = engine.max_model_len, "max_tokens"
    asked, prompt, reply = _prompted(given, engine)
    usual = answer_room(None, max_len, service.limits)
    room = min(given[name], usual)  # `max_tokens` may exceed the context
    prompt = truncated(prompt, given.get("truncate_prompt_tokens"), max_len, room)
    length = answer_len(given[name], name, prompt, max_len, service.limits, may_be_short=True)
    question = Question.of(asked, [prompt], engine, [length], None, reply=reply)
    return question, partial(
        MessageForm,
        **identity(given, "msg_", service, engine),
        shows_trace=question.traces,
        reply=reply,
        shows_thinking=given.get("thinking", {}).get("display") != "omitted",
        is_short=length < given[name] and len(prompt) + length == max_len,
    )


def _counted(given: Given, _service: Service, engine: AsyncEngine) -> JsonAnswer:
    _, tokens, _ = _prompted(given, engine)
    return JsonAnswer({"input_tokens": len(tokens)})


def _prompted(given: Given, engine: AsyncEngine) -> tuple[dict[str, Any], Tokens, ReplyForm]:
    """Return the fields under chat's names, the prompt, and the form of the reply."""
    asked = as_chat(given)
    effort = asked.get("reasoning_effort")
    return asked, *chat_prompt(asked, engine, calling_of(asked, engine), effort)
