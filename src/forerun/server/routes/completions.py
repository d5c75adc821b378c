"""`/v1/completions`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forerun.server.answers.completions import CompletionForm
from forerun.server.errors import bad_request
from forerun.server.fields import Endpoint
from forerun.server.prompts import completion_prompts, truncated
from forerun.server.question import Question, answer_len
from forerun.server.routes.asked import answered, identity, read_given, service_of
from forerun.server.streaming import data_events

_USUAL_LEN = 16  # OpenAI's, where a client does not say


async def completions(request: Request) -> Response:
    service = service_of(request)
    engine = service.engine
    given = await read_given(request, Endpoint.COMPLETIONS)
    who = identity(given, "cmpl-", service)
    add_special = given.get("add_special_tokens", True)
    prompts = await service.read(
        lambda: completion_prompts(given["prompt"], engine, add_special=add_special)
    )
    kept = given.get("truncate_prompt_tokens")
    prompts = [truncated(prompt, kept, engine.max_model_len) for prompt in prompts]
    wanted = given.get("max_tokens", _USUAL_LEN)
    length = answer_len(wanted, "max_tokens", prompts, engine.max_model_len, service.limits)
    echo, num_logprobs = given.get("echo", False), given.get("logprobs")
    if length == 0 and not echo:
        raise bad_request("max_tokens=0 asks for nothing; give 1 or more, or echo.", "max_tokens")
    question = Question.of(
        given, prompts, max(1, length), num_logprobs, num_logprobs if echo else None
    )
    group = await question.ask(service)
    form = CompletionForm(group, **who, **shown(given), echoes=echo, hides_output=length == 0)
    streams = given.get("stream", False)
    return await answered(request, form, streams=streams, events=data_events)


def shown(given: dict[str, Any]) -> dict[str, Any]:
    """What the client wants to see beside the text."""
    options = given.get("stream_options", {})
    return {
        "shows_logprobs": given.get("logprobs", False) is not False,
        "shows_token_ids": given.get("return_token_ids", False),
        "shows_trace": given.get("forerun", {}).get("trace", False),
        "includes_usage": options.get("include_usage", False),
        "continuous_usage": options.get("continuous_usage_stats", False),
    }
