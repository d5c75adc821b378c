"""A prompt is text or token ids; anything else is refused in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.engine import LLM
from forerun.engine.api.prompt import as_batch, as_prompt
from forerun.errors import InvalidOption
from forerun.types import SamplingParams

PARAMS = SamplingParams(temperature=0, max_tokens=1)


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("abc", ["abc"]),
        ([1, 2], [(1, 2)]),
        (np.array([1, 2]), [(1, 2)]),
        ([np.int64(1), 2], [(1, 2)]),
        ({"prompt": "abc"}, ["abc"]),
        ({"prompt_token_ids": [1, 2]}, [(1, 2)]),
        (["abc", [1, 2], {"prompt": "b"}, {"prompt_token_ids": (3,)}], ["abc", (1, 2), "b", (3,)]),
        (np.array([[1, 2], [3, 4]]), [(1, 2), (3, 4)]),
        ([[]], [()]),
        ([], []),
    ],
)
def test_one_or_several(given: Any, prompts: list[Any]) -> None:
    assert as_batch(given) == prompts


@pytest.mark.parametrize(
    "given",
    [
        [[1.7, 2]], [1.7, 2], [[[1, 2]]], [None], [[None]], [["a", "b"]], [[True]], [1, "a"],
        None, 5, b"abc", {1, 2}, np.array(3), np.array([0.5]),
        {}, {"text": "abc"}, {"prompt": 3}, {"prompt": "a", "prompt_token_ids": [1]},
    ],
)  # fmt: skip
def test_what_is_no_prompt(given: Any) -> None:
    with pytest.raises(InvalidOption, match="is no prompt; give text, a list of token ids"):
        as_batch(given)


def test_a_long_one_is_not_shown_whole() -> None:
    with pytest.raises(InvalidOption) as caught:
        as_prompt([0.5] * 1000)
    assert len(str(caught.value)) < 200


def test_a_mapping_is_answered_as_what_it_holds(plain: LLM) -> None:
    given: list[Any] = ["abc", {"prompt": "abc"}, {"prompt_token_ids": [0, 1, 2]}]
    text, mapped, ids = plain.generate(given, PARAMS)
    assert (mapped.prompt, mapped.prompt_token_ids) == ("abc", text.prompt_token_ids)
    assert mapped.outputs[0].token_ids == text.outputs[0].token_ids
    assert (ids.prompt, ids.prompt_token_ids) == (None, (0, 1, 2))
    with pytest.raises(InvalidOption, match="is no prompt"):
        plain.stream([1.5], PARAMS)  # type: ignore[list-item]
