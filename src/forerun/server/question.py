"""What the engine is asked, from the fields that a client gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.engine import RequestSpeculation
from forerun.engine.api.async_engine import AsyncEngine
from forerun.engine.request.request import Request
from forerun.sampling import fresh_seed
from forerun.server.answers.group import Group
from forerun.server.errors import bad_request
from forerun.server.operation.config import Limits
from forerun.server.prompts import Tokens, joined
from forerun.server.service import Service
from forerun.types import SamplingParams

# Fields that are sampling options of the same name.
_SAMPLING: Final = (
    *("n", "temperature", "top_p", "top_k", "min_p", "logit_bias", "allowed_token_ids"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens", "stop"),
    *("stop_token_ids", "include_stop_str_in_output", "ignore_eos", "skip_special_tokens"),
)


@dataclass(frozen=True)
class Question:
    """Prompts and how to answer each of them; `by_round` where every round is to be told."""

    prompts: Sequence[Tokens]
    params: SamplingParams
    priority: int = 0
    cache_salt: str | None = None
    speculation: RequestSpeculation | None = None
    prediction: str | None = None
    by_round: bool = False

    @classmethod
    def of(
        cls,
        given: Mapping[str, Any],
        prompts: Sequence[Tokens],
        max_tokens: int,
        num_logprobs: int | None,
        num_prompt_logprobs: int | None = None,
    ) -> Question:
        """One seed serves all prompts of a request, so that one number repeats it."""
        speculation, acceptance = _speculation(given.get("speculative"))
        options = {name: given[name] for name in _SAMPLING if name in given}
        params = SamplingParams.from_dict(
            {
                **options,
                **acceptance,
                "seed": given.get("seed", fresh_seed()),
                "max_tokens": max_tokens,
                "logprobs": num_logprobs,
                "prompt_logprobs": num_prompt_logprobs,
            }
        )
        return cls(
            prompts,
            params,
            given.get("priority", 0),
            given.get("cache_salt"),
            speculation,
            _predicted(given.get("prediction")),
            given.get("stream", False) or given.get("forerun", {}).get("trace", False),
        )

    async def ask(self, service: Service) -> Group:
        """All answers are under way, or none is. A prediction is read beside the event loop."""
        engine, num_answers = service.engine, len(self.prompts) * self.params.n
        if num_answers > engine.max_num_open:
            raise bad_request(
                f"{len(self.prompts)} prompts with n={self.params.n} are {num_answers} answers, "
                f"and {engine.max_num_open} may run or wait; ask for fewer.",
                "n",
            )

        def requests() -> list[Request]:
            return [r for prompt in self.prompts for r in self._requests(engine, prompt)]

        found = await service.read(requests) if self.prediction else requests()
        answers = engine.take(found, whole=not self.by_round)
        return Group(answers, self.params.n, service.limits.request_timeout_s)

    def _requests(self, engine: AsyncEngine, prompt: Tokens) -> list[Request]:
        return engine.requests(
            prompt,
            self.params,
            priority=self.priority,
            cache_salt=self.cache_salt,
            speculation=self.speculation,
            prediction=self.prediction,
        )


def answer_len(
    wanted: int | None, name: str, prompts: Sequence[Tokens], max_model_len: int, limits: Limits
) -> int:
    """How many tokens an answer may have: as many as asked for, else what there is room for."""
    ceiling = limits.max_answer_tokens
    if wanted is not None:
        if ceiling is not None and wanted > ceiling:
            raise bad_request(
                f"{name}={wanted} is not allowed; this server gives at most {ceiling} tokens.", name
            )
        return wanted
    room = max(1, max_model_len - max(map(len, prompts)))
    return room if ceiling is None else min(room, ceiling)


def _speculation(given: Any) -> tuple[RequestSpeculation | None, dict[str, Any]]:
    """What may guess, and how guesses are judged."""
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
    return None if given is None else joined(given["content"]) or None
