"""`/tokenize` and `/detokenize`, as vLLM has them; OpenAI's count of a response's input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forerun.engine.api.async_engine import AsyncEngine
from forerun.server.errors import bad_request
from forerun.server.fields import Endpoint
from forerun.server.prompts import Tokens, chat_prompt, conversation, refuse_endless
from forerun.server.routes.asked import read_given, service_of
from forerun.server.streaming import JsonAnswer


async def tokenize(request: Request) -> Response:
    service = service_of(request)
    engine = service.engine
    given = await read_given(request, Endpoint.TOKENIZE)
    service.model_named(given.get("model"))
    tokens = await service.read(lambda: _tokens(given, engine))
    answer: dict[str, Any] = {
        "count": len(tokens),
        "max_model_len": engine.max_model_len,
        "tokens": list(tokens),
    }
    if given.get("return_token_strs"):
        answer["token_strs"] = [engine.tokenizer.token(token) for token in tokens]
    return JsonAnswer(answer)


def _tokens(given: Mapping[str, Any], engine: AsyncEngine) -> Tokens:
    if ("prompt" in given) == ("messages" in given):
        raise bad_request("give either prompt or messages.", "prompt")
    if "messages" in given:
        return chat_prompt(given, engine)
    refuse_endless(len(given["prompt"]), engine.max_model_len)
    add_special = given.get("add_special_tokens", True)
    return tuple(engine.tokenizer.encode(given["prompt"], add_special=add_special))


async def input_tokens(request: Request) -> Response:
    """How many tokens a response would begin with."""
    service = service_of(request)
    engine = service.engine
    given = await read_given(request, Endpoint.INPUT_TOKENS)
    service.model_named(given.get("model"))
    tokens = await service.read(lambda: chat_prompt({"messages": conversation(given)}, engine))
    return JsonAnswer({"object": "response.input_tokens", "input_tokens": len(tokens)})


async def detokenize(request: Request) -> Response:
    service = service_of(request)
    tokenizer = service.engine.tokenizer
    given = await read_given(request, Endpoint.DETOKENIZE)
    service.model_named(given.get("model"))
    tokens = given["tokens"]
    if any(token >= tokenizer.vocab_size for token in tokens):
        raise bad_request(f"tokens holds ids outside 0 … {tokenizer.vocab_size - 1}.", "tokens")
    return JsonAnswer({"prompt": tokenizer.decode(tokens, skip_special=False)})
