"""`/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forerun.server.answers.chat import ChatForm
from forerun.server.errors import bad_request
from forerun.server.fields import Endpoint
from forerun.server.prompts import chat_prompt, truncated
from forerun.server.question import Question, answer_len
from forerun.server.routes.asked import answered, identity, read_given, service_of
from forerun.server.routes.completions import shown
from forerun.server.streaming import data_events


async def chat_completions(request: Request) -> Response:
    service = service_of(request)
    engine = service.engine
    given = await read_given(request, Endpoint.CHAT)
    who = identity(given, "chatcmpl-", service)
    prompt = await service.read(lambda: chat_prompt(given, engine))
    prompt = truncated(prompt, given.get("truncate_prompt_tokens"), engine.max_model_len)
    name = "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens"
    length = answer_len(given.get(name), name, [prompt], engine.max_model_len, service.limits)
    question = Question.of(given, [prompt], length, _num_logprobs(given))
    group = await question.ask(service)
    form = ChatForm(group, **who, **shown(given))
    streams = given.get("stream", False)
    return await answered(request, form, streams=streams, events=data_events)


def _num_logprobs(given: Mapping[str, Any]) -> int | None:
    wanted = given.get("logprobs", False)
    if "top_logprobs" in given and not wanted:
        raise bad_request("top_logprobs needs logprobs=true; add it.", "top_logprobs")
    return given.get("top_logprobs", 0) if wanted else None
