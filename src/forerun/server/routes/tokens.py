"""vLLM's `/tokenize`, `/detokenize` and `/tokenizer_info`, and OpenAI's count of input tokens."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forerun.engine.api.async_engine import AsyncEngine
from forerun.server.errors import bad_request
from forerun.server.fields import Endpoint
from forerun.server.prompts import Tokens, chat_prompt, conversation, encoded
from forerun.server.routes.asked import Given, made_of, service_of
from forerun.server.service import Service
from forerun.server.streaming import JsonAnswer
from forerun.server.tools import calling_of


async def tokenize(request: Request) -> Response:
    return await made_of(request, Endpoint.TOKENIZE, _tokenized)


async def tokenizer_info(request: Request) -> Response:
    """Special tokens and chat template, for programs that tokenize through this server."""
    settings = service_of(request).engine.tokenizer.settings
    return JsonAnswer({name: value or None for name, value in settings.items()})


async def input_tokens(request: Request) -> Response:
    """Count the prompt tokens of a response request."""
    return await made_of(request, Endpoint.INPUT_TOKENS, _counted)


async def detokenize(request: Request) -> Response:
    return await made_of(request, Endpoint.DETOKENIZE, _detokenized)


def _tokenized(given: Given, _service: Service, engine: AsyncEngine) -> JsonAnswer:
    tokens = _tokens(given, engine)
    answer: dict[str, Any] = {
        "count": len(tokens),
        "max_model_len": engine.max_model_len,
        "tokens": list(tokens),
    }
    if given.get("return_token_strs"):
        answer["token_strs"] = [engine.tokenizer.token(token) for token in tokens]
    return JsonAnswer(answer)


def _tokens(given: Given, engine: AsyncEngine) -> Tokens:
    if ("prompt" in given) == ("messages" in given):
        raise bad_request("give either prompt or messages.", "prompt")
    if "messages" in given:
        effort = given.get("reasoning_effort")
        return chat_prompt(given, engine, calling_of(given, engine), effort)[0]
    return encoded(given["prompt"], engine, add_special=given.get("add_special_tokens", True))


def _counted(given: Given, _service: Service, engine: AsyncEngine) -> JsonAnswer:
    messages = {"messages": conversation(given)}
    effort = given.get("reasoning", {}).get("effort")
    tokens, _ = chat_prompt(messages, engine, calling_of(given, engine), effort)
    return JsonAnswer({"object": "response.input_tokens", "input_tokens": len(tokens)})


def _detokenized(given: Given, _service: Service, engine: AsyncEngine) -> JsonAnswer:
    tokenizer, tokens = engine.tokenizer, given["tokens"]
    if max(tokens, default=0) >= tokenizer.vocab_size:
        raise bad_request(f"tokens holds ids outside 0 … {tokenizer.vocab_size - 1}.", "tokens")
    return JsonAnswer({"prompt": tokenizer.decode(tokens, skip_special=False)})
