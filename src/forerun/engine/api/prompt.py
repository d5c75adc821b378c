"""Reading what a caller gives: one prompt or several, and sampling parameters for them."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any, TypeGuard

import numpy as np

from forerun.errors import InvalidOption
from forerun.models.text.chat_template import Messages
from forerun.option_checks import is_whole
from forerun.types import SamplingParams

Prompt = str | Sequence[int] | Mapping[str, Any]
TextOrIds = str | tuple[int, ...]


def as_prompt(given: object) -> TextOrIds:
    """Return a prompt as text or as a tuple of ints, out of {"prompt": …} or {"prompt_token_ids":
    …} if it comes in one of these."""
    found = given
    if isinstance(given, Mapping):
        if len(given) != 1 or not given.keys() <= {"prompt", "prompt_token_ids"}:
            raise _no_prompt(given)
        (found,) = given.values()
    if isinstance(found, str):
        return found
    if not _is_listed(found):
        raise _no_prompt(given)
    if set(map(type, found)) <= {int}:  # the usual case: the checks below are slow
        return tuple(found)
    if not all(map(is_whole, found)):
        raise _no_prompt(given)
    return tuple(map(int, found))


def as_batch(given: object) -> list[TextOrIds]:
    """Return a list of prompts, given one or several."""
    is_one = isinstance(given, str | Mapping)
    if _is_listed(given) and len(given):
        is_one = isinstance(given[0], Number)
    if is_one:
        return [as_prompt(given)]
    if not _is_listed(given):
        raise _no_prompt(given)
    return list(map(as_prompt, given))


def as_conversations(given: object) -> list[Messages]:
    """Return a list of conversations, given one or several."""
    is_one = _is_listed(given) and (not len(given) or isinstance(given[0], Mapping))
    many = [given] if is_one else given
    if not _is_listed(many) or not all(map(_is_conversation, many)):
        raise InvalidOption(
            'messages are a list like [{"role": "user", "content": "…"}], or a list of such lists.'
        )
    return list(many)


def _is_conversation(given: object) -> bool:
    return _is_listed(given) and all(isinstance(message, Mapping) for message in given)


def _is_listed(given: object) -> TypeGuard[Sequence[Any]]:
    if isinstance(given, np.ndarray):
        return given.ndim > 0
    return isinstance(given, Sequence) and not isinstance(given, str | bytes)


def _no_prompt(given: object) -> InvalidOption:
    return InvalidOption(
        f"{reprlib.repr(given)} is no prompt; give text, a list of token ids, "
        f'{{"prompt": text}} or {{"prompt_token_ids": ids}}.'
    )


def params_for(
    num: int, given: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    """Return the parameters of `num` prompts; a single one is meant for all of them."""
    if given is None or isinstance(given, SamplingParams):
        return [given or SamplingParams()] * num
    if not _is_listed(given) or not all(isinstance(p, SamplingParams) for p in given):
        raise InvalidOption(
            "sampling_params must be SamplingParams, or a list of them; build it from your options."
        )
    if len(given) != num:
        raise InvalidOption(f"{len(given)} sampling_params for {num} prompts; match them.")
    return list(given)
