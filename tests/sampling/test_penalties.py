"""Penalties, token by token: whose tokens count, how often, and that the input stays as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.sampling import Context, served_logits, served_probs
from forerun.types import FloatArray, SamplingParams

ROW = np.array([2.0, -1.0, 0.5, 3.0, 0.0])


def shifts(context: Context, row: FloatArray = ROW, **options: Any) -> list[float]:
    """How much each logit was changed, relative to the last, which no option mentions."""
    served = served_logits(row, SamplingParams(**options), context)
    return [round(float(x), 9) for x in (served - served[-1]) - (row - row[-1])]


def test_repetition_counts_prompt_and_output_to_the_last_token() -> None:
    """A logit above 0 is divided and one below multiplied, once, however often the token occurs."""
    shift = [-1.0, -1.0, -0.25, -1.5, 0.0]
    for token in range(4):
        alone = [shift[token] if t == token else 0.0 for t in range(5)]
        for context in (
            Context((token,), ()),
            Context((), (token,)),
            Context((4,), (4, token)),
            Context((4, token), (4,)),
            Context((token, 4), (4, 4)),
            Context((token, token), (token, token)),
            Context((4,), (4,)).extended((4, token)),
        ):
            assert shifts(context, repetition_penalty=2.0) == alone, (token, context)


@pytest.mark.parametrize("prompt", [(), (0,), (0, 0, 2, 3)])
def test_presence_and_frequency_count_the_output_alone(prompt: tuple[int, ...]) -> None:
    output = (1, 2, 1, 1)
    assert shifts(Context(prompt, output), presence_penalty=0.5) == [0.0, -0.5, -0.5, 0.0, 0.0]
    assert shifts(Context(prompt, output), frequency_penalty=0.5) == [0.0, -1.5, -0.5, 0.0, 0.0]
    both = shifts(Context(prompt, output), presence_penalty=1.0, frequency_penalty=0.5)
    assert both == [0.0, -2.5, -1.5, 0.0, 0.0]
    assert shifts(Context(prompt, ()), presence_penalty=1.0) == [0.0] * 5


def test_ancestors_count_as_output() -> None:
    context = Context((0, 0), (1,)).extended((2, 2))
    assert shifts(context, frequency_penalty=0.5) == [0.0, -0.5, -1.0, 0.0, 0.0]
    assert context.extended(()) is context


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 0.7},
        {"top_k": 2},
        {"top_p": 0.5},
        {"min_p": 0.1},
        {"logit_bias": {0: 3.0}},
        {"allowed_token_ids": (0, 1)},
        {"repetition_penalty": 2.0},
        {"presence_penalty": 1.0},
        {"min_tokens": 5},
    ],
    ids=str,
)
def test_raw_logits_are_not_changed(options: dict[str, Any], dtype: Any) -> None:
    """They are read again: for log-probabilities, and by other requests that share the row."""
    row = np.array([2.0, -1.0, 0.5, 3.0], dtype)
    before = row.copy()
    served = served_logits(row, SamplingParams(**options), Context((0,), (1,)), (3,))
    served_probs(row, SamplingParams(**options), Context((0,), (1,)), (3,))
    assert row.tobytes() == before.tobytes()
    assert not np.shares_memory(served, row)
    assert served.dtype == np.float64
