"""The command line's sampling options: all of `SamplingParams`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from forerun.errors import InvalidOption
from forerun.types import SamplingParams

PANEL = "Sampling"


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL)


def sampling_options(
    temperature: Annotated[float, _option("--temperature", text="0 is argmax.")] = 0.0,
    top_k: Annotated[int, _option("--top-k", text="Keep the k best tokens; 0 keeps all.")] = 0,
    top_p: Annotated[float, _option("--top-p", text="Keep the best tokens up to this mass.")] = 1.0,
    min_p: Annotated[
        float, _option("--min-p", text="Drop tokens under this share of the best.")
    ] = 0.0,
    repetition_penalty: Annotated[
        float,
        _option("--repetition-penalty", text="Above 1 discourages repetition."),
    ] = 1.0,
    presence_penalty: Annotated[
        float, _option("--presence-penalty", text="Subtracted once from tokens already put out.")
    ] = 0.0,
    frequency_penalty: Annotated[
        float, _option("--frequency-penalty", text="Subtracted for each time a token was put out.")
    ] = 0.0,
    logit_bias: Annotated[
        str | None, _option("--logit-bias", text='JSON from token id to bias, like {"42": -100}.')
    ] = None,
    allowed_token_ids: Annotated[
        list[int] | None, _option("--allowed-token-id", text="Only these ids may come; repeatable.")
    ] = None,
    seed: Annotated[
        int | None, _option("--seed", text="The same seed gives the same text; drawn if not given.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        _option("--max-tokens", text="Stop after this many tokens; 256, or what the context has."),
    ] = None,
    min_tokens: Annotated[int, _option("--min-tokens", text="Do not end before this many.")] = 0,
    stop: Annotated[
        list[str] | None, _option("--stop", text="End before this text; repeatable.")
    ] = None,
    stop_token_ids: Annotated[
        list[int] | None, _option("--stop-token-id", text="End at this token; repeatable.")
    ] = None,
    include_stop: Annotated[bool, _option("--include-stop", text="Keep the stop text.")] = False,
    ignore_eos: Annotated[bool, _option("--ignore-eos", text="Go on past the end.")] = False,
    keep_special: Annotated[bool, _option("--keep-special", text="Show special tokens.")] = False,
    logprobs: Annotated[
        int | None, _option("--logprobs", text="With --json: log-probabilities of the k best.")
    ] = None,
    n: Annotated[int, _option("-n", "--n", text="Answers per prompt.")] = 1,
    acceptance: Annotated[
        str,
        _option(
            "--acceptance",
            text="coupled: the same tokens as without speculation; rejection: the same law; "
            "lenient: LOSSY.",
        ),
    ] = "coupled",
    lenience: Annotated[
        float, _option("--lenience", text="For lenient: no token above p/l; 1 is exact.")
    ] = 1.0,
) -> SamplingParams:
    return SamplingParams.from_dict(
        {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "presence_penalty": presence_penalty,
            "frequency_penalty": frequency_penalty,
            "logit_bias": _parse_bias(logit_bias),
            "allowed_token_ids": tuple(allowed_token_ids) if allowed_token_ids else None,
            "seed": seed,
            "max_tokens": max_tokens,
            "min_tokens": min_tokens,
            "stop": tuple(stop or ()),
            "stop_token_ids": tuple(stop_token_ids or ()),
            "include_stop_str_in_output": include_stop,
            "ignore_eos": ignore_eos,
            "skip_special_tokens": not keep_special,
            "logprobs": logprobs,
            "n": n,
            "acceptance": acceptance,
            "lenience": lenience,
        }
    )


def _parse_bias(text: str | None) -> dict[str, float]:
    if text is None:
        return {}
    try:
        bias = json.loads(text)
        return {str(int(token)): float(value) for token, value in bias.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        raise InvalidOption(
            '--logit-bias must be a JSON object from token id to number, like {"42": -100}.'
        ) from None
