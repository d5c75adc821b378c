"""The command line's sampling options: those of `SamplingParams`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from forerun.cli.options.shared import filled_by
from forerun.errors import InvalidOption
from forerun.types import SamplingParams

PANEL = "Sampling"


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL)


@filled_by(SamplingParams, panel=PANEL)
def sampling_options(
    temperature: Annotated[float, _option("--temperature", text="0 is argmax.")] = 0.0,
    logit_bias: Annotated[
        str | None, _option("--logit-bias", text='JSON from token id to bias, like {"42": -100}.')
    ] = None,
    max_tokens: Annotated[
        int | None,
        _option("--max-tokens", text="Stop after this many tokens; 256, or what the context has."),
    ] = None,
    keep_special: Annotated[bool, _option("--keep-special", text="Show special tokens.")] = False,
    acceptance: Annotated[
        str,
        _option(
            "--acceptance",
            text="coupled: the same tokens as without speculation; rejection: the same law; "
            "lenient: LOSSY.",
        ),
    ] = "coupled",
    **rest: Any,
) -> SamplingParams:
    rest |= {"logit_bias": _parse_bias(logit_bias), "skip_special_tokens": not keep_special}
    rest |= {"temperature": temperature, "max_tokens": max_tokens, "acceptance": acceptance}
    return SamplingParams(**rest)


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
