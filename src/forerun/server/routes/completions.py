"""`/v1/completions`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from forerun.engine.api.async_engine import AsyncEngine
from forerun.server.answers.completions import CompletionForm
from forerun.server.answers.group import Group
from forerun.server.errors import bad_request
from forerun.server.fields import Endpoint
from forerun.server.prompts import as_tokens, listed, truncated
from forerun.server.question import Question, answer_len, answer_room
from forerun.server.routes.asked import Given, answered, identity
from forerun.server.service import Service
from forerun.server.streaming import data_events

_USUAL_LEN: Final = 16  # OpenAI's default for `max_tokens`


async def completions(request: Request) -> Response:
    return await answered(request, Endpoint.COMPLETIONS, _read, data_events)


def _read(
    given: Given, service: Service, engine: AsyncEngine
) -> tuple[Question, Callable[[Group], CompletionForm]]:
    max_len, kept = engine.max_model_len, given.get("truncate_prompt_tokens")
    add_special = given.get("add_special_tokens", True)
    said = listed(given["prompt"])
    whole = [as_tokens(one, engine, add_special=add_special) for one in said]
    wanted = given.get("max_tokens")
    room = answer_room(wanted, max_len, service.limits, _USUAL_LEN)
    prompts = [truncated(prompt, kept, max_len, room) for prompt in whole]
    lengths = [answer_len(wanted, "max_tokens", p, max_len, service.limits) for p in prompts]
    if wanted is None:
        lengths = [min(_USUAL_LEN, length) for length in lengths]
    echo, num_logprobs = given.get("echo", False), given.get("logprobs")
    if not any(lengths) and not echo:
        raise bad_request("max_tokens=0 asks for nothing; give 1 or more, or echo.", "max_tokens")
    num_before = num_logprobs if echo else None
    question = Question.of(given, prompts, engine, lengths, num_logprobs, num_before)
    who = identity(given, "cmpl-", service, engine)
    echoed = [
        text if isinstance(text, str) and prompt == all_of_it else None
        for text, prompt, all_of_it in zip(said, prompts, whole, strict=True)
    ]
    return question, partial(CompletionForm, **who, **shown(given), echoed=echoed if echo else ())


def shown(given: Given) -> dict[str, Any]:
    """Return what the client wants to see besides the text."""
    options = given.get("stream_options", {})
    if options and not given.get("stream"):
        raise bad_request(
            "stream_options are for streams; set stream, or leave them out.", "stream_options"
        )
    return {
        "shows_logprobs": given.get("logprobs", False) is not False,
        "shows_token_ids": given.get("return_token_ids", False),
        "shows_trace": given.get("forerun", {}).get("trace", False),
        "includes_usage": options.get("include_usage", False),
        "continuous_usage": options.get("continuous_usage_stats", False),
    }
