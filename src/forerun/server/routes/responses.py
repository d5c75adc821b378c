"""`/v1/responses`: stateless, so a client sends all items every time."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forerun.server.answers.responses import ResponseForm, named_events
from forerun.server.fields import Endpoint
from forerun.server.prompts import chat_prompt, conversation, truncated
from forerun.server.question import Question, answer_len
from forerun.server.routes.asked import answered, identity, read_given, service_of


async def responses(request: Request) -> Response:
    service = service_of(request)
    engine = service.engine
    given = await read_given(request, Endpoint.RESPONSES)
    who = identity(given, "resp_", service)
    prompt = await service.read(lambda: chat_prompt({"messages": conversation(given)}, engine))
    prompt = truncated(prompt, given.get("truncate_prompt_tokens"), engine.max_model_len)
    name = "max_output_tokens"
    length = answer_len(given.get(name), name, [prompt], engine.max_model_len, service.limits)
    wants_logprobs = "top_logprobs" in given or bool(given.get("include"))
    num_logprobs = given.get("top_logprobs", 0) if wants_logprobs else None
    question = Question.of(given, [prompt], length, num_logprobs)
    group = await question.ask(service)
    form = ResponseForm(
        group,
        **who,
        shows_logprobs=wants_logprobs,
        shows_trace=given.get("forerun", {}).get("trace", False),
        given=given,
    )
    streams = given.get("stream", False)
    return await answered(request, form, streams=streams, events=named_events)
