"""Builds the engine's requests from the fields that a client gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.engine import RequestSpeculation
from forerun.engine.api.async_engine import AsyncEngine
from forerun.engine.request.request import Request
from forerun.errors import InvalidGrammar
from forerun.replies import Reasoning, ReplyForm
from forerun.sampling import derive_key, fresh_seed
from forerun.server.answers.group import Group
from forerun.server.errors import bad_request
from forerun.server.operation.config import Limits
from forerun.server.prompts import Tokens
from forerun.server.structured import structure_of
from forerun.types import SamplingParams

# Fields that are sampling options of the same name.
_SAMPLING: Final = (
    *("n", "temperature", "top_p", "top_k", "min_p", "logit_bias", "allowed_token_ids"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens", "stop"),
    *("stop_token_ids", "include_stop_str_in_output", "ignore_eos", "skip_special_tokens"),
)

_DRAWN: Final = -1  # as a seed: draw one, as in vLLM and llama-server


@dataclass(frozen=True)
class Question:
    """`num_choices` requests for each prompt, and how their answers are to be sent."""

    requests: Sequence[Request]
    num_choices: int
    streams: bool
    traces: bool
    hides_answers: bool
    reasoning: Reasoning | None = None  # that each answer may have

    @classmethod
    def of(
        cls,
        given: Mapping[str, Any],
        prompts: Sequence[Tokens],
        engine: AsyncEngine,
        lengths: Sequence[int],
        num_logprobs: int | None,
        num_prompt_logprobs: int | None = None,
        reply: ReplyForm | None = None,
    ) -> Question:
        """Build the requests, in any thread; those that could never run are refused, and none runs
        yet.

        `lengths` are the maximum tokens of an answer, by prompt. The engine generates at least one
        token; if all lengths are 0, the answers are hidden.
        """
        _check_ids(given, engine.tokenizer.vocab_size)
        speculation, acceptance = _speculation(given.get("speculative"))
        structure = structure_of(given)
        options = {name: given[name] for name in _SAMPLING if name in given}
        seed = given.get("seed", _DRAWN)
        if seed == _DRAWN:
            seed = fresh_seed()
        params = SamplingParams.from_dict(
            {
                **options,
                **acceptance,
                "seed": seed,
                "max_tokens": max(1, lengths[0]),
                "logprobs": num_logprobs,
                "prompt_logprobs": num_prompt_logprobs,
                "structured_outputs": structure.wanted,
            }
        )
        if reply is not None:
            params = reply.params(params)
        _check_num(len(prompts), params.n, engine.max_num_open)
        try:
            requests = [
                request
                for idx, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
                for request in engine.requests(
                    prompt,
                    # Equal prompts in a list get different samples; one seed repeats them all.
                    params.with_(seed=derive_key(seed, idx), max_tokens=max(1, length))
                    if idx
                    else params,
                    priority=given.get("priority", 0),
                    cache_salt=given.get("cache_salt"),
                    speculation=speculation,
                    prediction=_predicted(given.get("prediction")),
                )
            ]
        except InvalidGrammar as error:
            raise bad_request(str(error), structure.field) from None
        traces = given.get("forerun", {}).get("trace", False)
        streams, reasoning = given.get("stream", False), reply.reasoning if reply else None
        return cls(requests, params.n, streams, traces, not any(lengths), reasoning)

    def ask(self, engine: AsyncEngine, timeout_s: float) -> Group:
        """Queue the requests in the engine, all or none."""
        answers = engine.take(self.requests, whole=not (self.streams or self.traces))
        return Group(
            answers,
            self.num_choices,
            timeout_s,
            hides_answers=self.hides_answers,
            reasoning=self.reasoning,
        )


def _check_ids(given: Mapping[str, Any], vocab_size: int) -> None:
    """Refuse lists that must repeat ids, being longer than the vocabulary: each step reads them."""
    for name in ("allowed_token_ids", "stop_token_ids"):
        if (num := len(given.get(name, ()))) > vocab_size:
            raise bad_request(
                f"{name} has {num} ids, and the vocabulary {vocab_size}; give each once.", name
            )


def _check_num(num_prompts: int, num_choices: int, max_num_open: int) -> None:
    num_answers = num_prompts * num_choices
    if num_answers > max_num_open:
        raise bad_request(
            f"{num_prompts} prompts with n={num_choices} are {num_answers} answers, "
            f"and {max_num_open} may run or wait; ask for fewer, or raise --max-num-waiting.",
            "n" if num_choices > 1 else "prompt",
        )


def answer_len(
    wanted: int | None,
    name: str,
    prompt: Tokens,
    max_model_len: int,
    limits: Limits,
    *,
    may_be_short: bool = False,
) -> int:
    """Return how many tokens an answer may have: `wanted`, or all the room if that is None or -1.

    `may_be_short`: if the context or the server's limit has less room than `wanted`, the answer is
    shortened instead of refused.
    """
    ceiling = limits.max_answer_tokens
    num = len(prompt)
    if wanted is not None and wanted >= 0:
        if may_be_short:
            room = max_model_len - num
            return min(wanted, ceiling or wanted, room if room > 0 else wanted)
        if ceiling is not None and wanted > ceiling:
            raise bad_request(
                f"{name}={wanted} is not allowed; this server gives at most {ceiling} tokens.", name
            )
        if num < max_model_len < num + wanted:
            raise bad_request(
                f"this model's maximum context length is {max_model_len} tokens, the prompt has "
                f"{num} and {name} is {wanted}; shorten the prompt or lower {name}.",
                name,
                "context_length_exceeded",
            )
        return wanted
    room = max(1, max_model_len - num)
    return room if ceiling is None else min(room, ceiling)


def answer_room(
    wanted: int | None, max_model_len: int, limits: Limits, usual: int | None = None
) -> int:
    """Return how many tokens a truncated prompt leaves for the answer: `wanted`, else `usual`, else
    a quarter of the context."""
    if wanted is not None and wanted >= 0:
        return wanted
    room = max_model_len // 4 if usual is None else usual
    return room if limits.max_answer_tokens is None else min(room, limits.max_answer_tokens)


def _speculation(given: Any) -> tuple[RequestSpeculation | None, dict[str, Any]]:
    """Return the request's speculation, and the sampling option by which guesses are judged."""
    if given is None or given is True:
        return None, {}
    if given is False:
        return RequestSpeculation(num_speculative_tokens=0), {}
    method = given.get("method")
    chosen = RequestSpeculation(
        None if method == "auto" else method,
        given.get("num_speculative_tokens"),
        given.get("num_branches"),
    )
    acceptance = given.get("acceptance")
    return chosen, {} if acceptance is None else {"acceptance": acceptance}


def _predicted(given: Mapping[str, Any] | None) -> str | None:
    """Return the predicted text, which may come in parts."""
    if given is None:
        return None
    content = given["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return text or None
