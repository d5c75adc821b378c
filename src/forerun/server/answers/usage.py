"""`usage`: OpenAI's counts of tokens, and under `forerun` what speculation did."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from forerun.drafters.prediction import PREDICTION
from forerun.engine.request.request import Request
from forerun.replies import Reasoning


def usage(
    requests: Sequence[Request],
    num_choices: int,
    num_told: int,
    reasoning: Reasoning | None = None,
) -> dict[str, Any]:
    """Return the usage of `requests`, `num_choices` per prompt; `num_told` tokens were sent."""
    num_reasoning = sum(_num_reasoned(request, reasoning) for request in requests)
    prompts = requests[::num_choices]
    num_prompt_tokens = sum(len(request.prompt) for request in prompts)
    num_predicted, num_accepted = _guesses_of(requests, PREDICTION)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_told,
        "total_tokens": num_prompt_tokens + num_told,
        "prompt_tokens_details": {
            "cached_tokens": sum(request.num_cached_tokens or 0 for request in prompts),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "accepted_prediction_tokens": num_accepted,
            "rejected_prediction_tokens": num_predicted - num_accepted,
            "reasoning_tokens": min(num_reasoning, num_told),
            "audio_tokens": 0,
        },
        "forerun": speculation_figures(requests),
    }


def _num_reasoned(request: Request, reasoning: Reasoning | None) -> int:
    """Return how many tokens of an answer are reasoning so far, including the marks around it."""
    if reasoning is None:
        return 0
    ends, end = request.text_ends, reasoning.end_in(request.text.text)
    if end is None:
        return len(ends)
    return min(len(ends), bisect_left(ends, end) + 1) if end else 0


def speculation_figures(requests: Sequence[Request]) -> dict[str, Any]:
    """Return what speculation did, over all answers to one HTTP request."""
    stats = [request.stats for request in requests]
    num_draft_tokens = sum(one.draft_tokens for one in stats)
    num_accepted = sum(one.accepted_tokens for one in stats)
    num_passes = sum(one.target_passes for one in stats)
    num_emitted = sum(one.emitted_tokens for one in stats)
    return {
        "seed": requests[0].seed,
        "target_passes": num_passes,
        "draft_tokens": num_draft_tokens,
        "accepted_tokens": num_accepted,
        "acceptance_rate": num_accepted / num_draft_tokens if num_draft_tokens else None,
        "mean_acceptance_length": num_emitted / num_passes if num_passes else None,
        "drafter_failures": sum(one.drafter_failures for one in stats),
    }


def responses_usage(found: dict[str, Any]) -> dict[str, Any]:
    """Return the usage under the names of the Responses API."""
    return {
        "input_tokens": found["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": found["prompt_tokens_details"]["cached_tokens"],
            "cache_write_tokens": 0,  # writes are free here; clients need the figure
        },
        "output_tokens": found["completion_tokens"],
        "output_tokens_details": {
            name: found["completion_tokens_details"][name]
            for name in (
                *("reasoning_tokens", "accepted_prediction_tokens"),
                "rejected_prediction_tokens",
            )
        },
        "total_tokens": found["total_tokens"],
        "forerun": found["forerun"],
    }


def messages_usage(found: dict[str, Any]) -> dict[str, Any]:
    """Return the usage under Anthropic's names; `input_tokens` excludes cached tokens."""
    num_cached = found["prompt_tokens_details"]["cached_tokens"]
    details = found["completion_tokens_details"]
    return {
        "input_tokens": found["prompt_tokens"] - num_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": num_cached,
        "output_tokens": found["completion_tokens"],
        "output_tokens_details": {
            "thinking_tokens": details["reasoning_tokens"],
            "accepted_prediction_tokens": details["accepted_prediction_tokens"],
            "rejected_prediction_tokens": details["rejected_prediction_tokens"],
        },
        "forerun": found["forerun"],
    }


def _guesses_of(requests: Sequence[Request], drafter: str) -> tuple[int, int]:
    """Return how many guesses one drafter made, and how many were accepted."""
    found = [request.stats.drafters.get(drafter, (0, 0)) for request in requests]
    return sum(made for made, _ in found), sum(accepted for _, accepted in found)
