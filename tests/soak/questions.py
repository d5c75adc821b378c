"""Seeded requests of every kind: lengths, sampling, drafters, depths, stops, salts, cancels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from forerun.engine.request.options import RequestOptions
from forerun.speculation.request import RequestSpeculation
from forerun.types import Acceptance, SamplingParams, StructuredOutputsParams

# Constraints that models of letters and models of words can both satisfy.
_FITTING: Final = (
    StructuredOutputsParams(regex="[a-z ,.]{0,30}"),
    StructuredOutputsParams(choice=("abc", "abcabcabc", "a cat on a mat", "ab")),
    StructuredOutputsParams(grammar='start: "a" start "b" | "c" start | "d"'),
    StructuredOutputsParams(regex="a[a-z ]{2,9}e", triggers=("a",)),
    StructuredOutputsParams(regex="[a-z ]{3,12}", reasoning=("a", "e")),
)


@dataclass(frozen=True)
class Question:
    """All that decides an answer: the prompt, and how tokens are chosen."""

    prompt: tuple[int, ...]
    params: SamplingParams


@dataclass(frozen=True)
class Asked:
    """A question as asked in a batch: nothing that this class adds may change the answer."""

    question: Question
    options: RequestOptions
    acceptance: Acceptance
    leaves_after: int | None  # steps until it is cancelled; 0: before the first

    @property
    def params(self) -> SamplingParams:
        return self.question.params.with_(acceptance=self.acceptance)

    @property
    def keeps_bits(self) -> bool:
        """Coupled requests keep the bits; others keep the law, and the bits at temperature 0."""
        return self.acceptance is Acceptance.COUPLED or self.params.temperature == 0


@dataclass(frozen=True)
class Questions:
    """Draws questions; prompts are cut from `texts`, so many share a prefix."""

    texts: Sequence[Sequence[int]]
    max_prompt: int
    max_tokens: int
    stops: Sequence[str]
    token_ids: Sequence[int]  # for biases, stops and masks

    def draw(self, rng: Random) -> Question:
        text = rng.choice(self.texts)
        prompt = text[: rng.randint(1, min(self.max_prompt, len(text)))]
        max_tokens = rng.randint(1, self.max_tokens)
        return Question(tuple(prompt), SamplingParams(max_tokens=max_tokens, **self._law(rng)))

    def _law(self, rng: Random) -> dict[str, Any]:
        """Draw the sampling options; each has its default in most requests."""
        some = rng.sample(list(self.token_ids), 3)
        return {
            "temperature": rng.choice([0.0, 0.6, 1.0, 1.3]),
            "top_k": rng.choice([0, 0, 0, 5]),
            "top_p": rng.choice([1.0, 1.0, 0.9]),
            "min_p": rng.choice([0.0, 0.0, 0.05]),
            "repetition_penalty": rng.choice([1.0, 1.0, 1.2]),
            "presence_penalty": rng.choice([0.0, 0.0, 0.5]),
            "frequency_penalty": rng.choice([0.0, 0.0, 0.3]),
            "logit_bias": rng.choice([{}, {}, {}, {some[0]: 2.0}]),
            "stop": rng.choice([(), (), (), tuple(rng.sample(list(self.stops), 2))]),
            "stop_token_ids": rng.choice([(), (), (), (some[1],)]),
            "structured_outputs": rng.choice([None, None, None, None, *_FITTING]),
            "ignore_eos": rng.random() < 0.8,
            "logprobs": rng.choice([None, None, None, 2]),
            "seed": rng.randrange(1 << 32),
        }


def in_a_batch(
    question: Question, rng: Random, drafters: Sequence[str], cancel_rate: float
) -> Asked:
    speculation = RequestSpeculation(
        drafter=rng.choice([None, *drafters]),
        num_speculative_tokens=rng.choice([None, None, 0, 1, 2, 4]),
        num_branches=rng.choice([None, 1]),
    )
    salt = rng.choice([None, "a", "b"])
    odd = rng.choice([Acceptance.REJECTION, Acceptance.LENIENT])
    return Asked(
        question,
        RequestOptions(rng.randint(-2, 2), salt, speculation),
        odd if rng.random() < 0.1 else Acceptance.COUPLED,
        rng.choice([0, 1, 2, 5, 15]) if rng.random() < cancel_rate else None,
    )
