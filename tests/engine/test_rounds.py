"""Promise 1 through the whole engine over several rounds, by enumeration, to 1e-9.

Every way the uniforms of an answer can fall is run through `LLM.generate`: its drafters, its
passes, its verdicts and what they commit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from forerun.engine import LLM
from forerun.engine.request import request as request_module
from forerun.sampling import Context, served_probs
from forerun.types import Acceptance, SamplingParams
from tests.enumeration import LazyNoise, World, law_of
from tests.models_llama.runs import chain_logits

PROMPT = (0, 1, 2, 0, 0, 1, 1, 0)
PARAMS = SamplingParams(
    max_tokens=4,
    ignore_eos=True,
    acceptance=Acceptance.REJECTION,
    allowed_token_ids=(0, 1, 2),
    temperature=3.0,
    repetition_penalty=1.2,
    frequency_penalty=0.4,
)
Text = tuple[int, ...]


def exact_law(llm: LLM) -> dict[Text, float]:
    law: dict[Text, float] = {(): 1.0}
    for _ in range(PARAMS.max_tokens or 0):
        law = {
            (*text, token): prob * float(p)
            for text, prob in law.items()
            for token, p in enumerate(next_probs(llm, text))
            if p > 0
        }
    return law


def next_probs(llm: LLM, text: Text) -> Any:
    logits = chain_logits(llm.model, (*PROMPT, *text))[-1]
    return served_probs(logits, PARAMS, Context(PROMPT, text), llm.tokenizer.eos_ids)


def answer(llm: LLM, monkeypatch: pytest.MonkeyPatch, world: World) -> Text:
    monkeypatch.setattr(request_module, "Noise", lambda _seed, _choice: LazyNoise(world))
    return tuple(llm.generate(PROMPT, PARAMS)[0].outputs[0].token_ids)


@pytest.mark.parametrize(
    "config",
    [
        {"method": "unigram", "num_speculative_tokens": 1},
        {"method": "bigram", "num_speculative_tokens": 2},
    ],
    ids=["one guess", "chain"],
)
def test_answers_of_several_rounds_have_the_targets_law(
    plain: LLM, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = plain.with_speculation({**config, "adaptive": False})
    exact = exact_law(plain)
    law = law_of(partial(answer, llm, monkeypatch))
    assert set(law) <= set(exact), "a text of probability 0 came out"
    assert max(abs(law.get(text, 0.0) - prob) for text, prob in exact.items()) < 1e-9
    assert sum(prob > 1e-3 for prob in exact.values()) > 20, "too certain to tell"
