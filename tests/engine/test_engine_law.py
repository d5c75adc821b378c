"""Promise 1 through the whole engine: texts by `rejection` have the target's joint law."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from forerun.engine import LLM
from forerun.sampling import Context, served_probs
from forerun.types import Acceptance, SamplingParams
from tests.models_llama.runs import chain_logits
from tests.statistics import FALSE_ALARM_RATE, chi2_p_value

PROMPT = (0, 1, 2, 0, 1)
LENGTH = 3
OPTIONS: dict[str, Any] = {"top_k": 2, "repetition_penalty": 1.3, "frequency_penalty": 0.4}
NUM_BATCHES, N = 8, 128


def exact_law(llm: LLM, params: SamplingParams) -> dict[tuple[int, ...], float]:
    """Return the probability of every possible text, from the model's own logits."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(LENGTH):
        law = {
            (*text, token): prob * float(p)
            for text, prob in law.items()
            for token, p in enumerate(_next_probs(llm, params, text))
            if p > 0
        }
    return law


def _next_probs(llm: LLM, params: SamplingParams, text: tuple[int, ...]) -> Any:
    logits = chain_logits(llm.model, (*PROMPT, *text))[-1]
    return served_probs(logits, params, Context(PROMPT, text), llm.tokenizer.eos_ids)


def texts(llm: LLM, params: SamplingParams) -> Counter[tuple[int, ...]]:
    return Counter(
        output.token_ids
        for seed in range(NUM_BATCHES)
        for output in llm.generate(PROMPT, params.with_(seed=seed, n=N))[0].outputs
    )


@pytest.mark.slow  # `test_rounds.py` has the law of answers by enumeration
@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"method": "own_layers", "num_layers": 2, "num_branches": 2}, id="tree"),
        pytest.param(
            {"method": "merge", "methods": ["bigram", "own_layers"], "num_layers": 1}, id="merge"
        ),
    ],
)
def test_rejection_keeps_the_joint_law(plain: LLM, config: dict[str, Any]) -> None:
    params = SamplingParams(
        max_tokens=LENGTH, ignore_eos=True, acceptance=Acceptance.REJECTION, **OPTIONS
    )
    llm = plain.with_speculation({**config, "num_speculative_tokens": 1, "adaptive": False})
    law = exact_law(plain, params)
    counts = texts(llm, params)
    assert set(counts) <= set(law), "a text of probability 0 came out"
    expected = [NUM_BATCHES * N * prob for prob in law.values()]
    assert chi2_p_value([counts[text] for text in law], expected) > FALSE_ALARM_RATE
    assert len(law) > 5, "too few texts to tell a wrong law"


def test_all_texts_are_possible(plain: LLM) -> None:
    law = exact_law(plain, SamplingParams(**OPTIONS))
    assert abs(sum(law.values()) - 1) < 1e-9
    assert all(len(text) == LENGTH for text in itertools.chain(law))
