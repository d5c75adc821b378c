"""Sampling options, made from the fields of `SamplingParams`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.cli.options.shared import filled_by, parted
from forerun.cli.terminal.input import read_option
from forerun.errors import InvalidOption
from forerun.option_fields import option
from forerun.types import SamplingParams, StructuredOutputsParams


@dataclass(frozen=True)
class TypedIn:
    """Options whose type, name or default differs from the field in `SamplingParams`."""

    temperature: float = option(0.0, "Sampling temperature; 0 is greedy.")
    logit_bias: str | None = option(
        None, 'Bias added to logits: JSON from token id to number, like {"42": -100}.'
    )
    max_tokens: int | None = option(
        None, "Maximum tokens to generate. Default: 256, or what fits into the context."
    )
    keep_special: bool = option(False, "Keep special tokens in the text.")
    acceptance: str = option(
        "coupled",
        "How guesses are accepted: coupled (same tokens as without speculation), rejection (same "
        "distribution) or lenient (LOSSY).",
    )
    json_schema: Path | None = option(None, "File with a JSON schema that the answer must match.")
    regex: str | None = option(None, "Regular expression that the answer must match.")
    choice: tuple[str, ...] = option((), "Allowed answer; repeat it for each one.")
    grammar: Path | None = option(
        None, "File with a Lark or GBNF grammar that the answer must match."
    )


@filled_by(TypedIn, SamplingParams, panel="Sampling")
def sampling_options(**given: Any) -> SamplingParams:
    typed, rest = parted(TypedIn, given)
    return SamplingParams(
        temperature=typed.temperature,
        logit_bias=_parse_bias(typed.logit_bias),
        max_tokens=typed.max_tokens,
        skip_special_tokens=not typed.keep_special,
        structured_outputs=_structure(typed),
        acceptance=typed.acceptance,  # type: ignore[arg-type]  # it accepts the name
        **rest,
    )


def _structure(typed: TypedIn) -> StructuredOutputsParams | None:
    given: dict[str, Any] = {"regex": typed.regex, "choice": typed.choice or None}
    if typed.json_schema is not None:
        given["json"] = _read_schema(typed.json_schema)
    if typed.grammar is not None:
        wanted = "the path of a grammar in Lark or GBNF"
        given["grammar"] = read_option(typed.grammar, "--grammar", wanted)
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        raise InvalidOption(
            "--json-schema, --regex, --choice and --grammar cannot be combined; give one of them."
        )
    return StructuredOutputsParams(**given) if given else None


def _read_schema(path: Path) -> str:
    wanted = 'the path of a JSON schema, like {"type": "object"}'
    text = read_option(path, "--json-schema", wanted)
    try:
        found, why = json.loads(text), "it is not an object"
    except (ValueError, RecursionError) as error:
        found, why = None, str(error)
    if not isinstance(found, dict):
        raise InvalidOption(f"--json-schema {path} is not a JSON schema ({why}); give {wanted}.")
    return text


def _parse_bias(text: str | None) -> dict[int, float]:
    if text is None:
        return {}
    try:
        bias = json.loads(text)
        return {int(token): float(value) for token, value in bias.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        raise InvalidOption(
            '--logit-bias must be a JSON object from token id to number, like {"42": -100}.'
        ) from None
