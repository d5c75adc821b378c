"""Whole rounds with the real noise: joint χ² on multi-token outcomes, option by option.

A small model is decoded three tokens far, speculatively, with a drafter that applies other
transforms than the target. The counts of whole three-token texts are compared with their exact
law, which `plain_pipeline` derives from the definition. False-alarm rate: see `statistics`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from forerun.sampling import (
    Context,
    Logits,
    Noise,
    Stream,
    draw_siblings,
    gumbel_top,
    served_logits,
    softmax,
)
from forerun.types import ROOT, Acceptance, Proposal, ProposalBuilder, SamplingParams, Verdict
from forerun.verify import coupled, rejection
from tests.plain_pipeline import plain_probs
from tests.statistics import FALSE_ALARM_RATE, chi2_p_value

V, LENGTH = 4, 3
NUM_TEXTS = 1500
PROMPT = (1, 1, 3)

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "temperature": {"temperature": 0.6},
    "hot": {"temperature": 2.5},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.3},
    "repetition": {"repetition_penalty": 1.7},
    "presence": {"presence_penalty": 0.8},
    "frequency": {"frequency_penalty": 0.7},
    "bias": {"logit_bias": {0: 1.5, 2: -1.0}},
    "allowed": {"allowed_token_ids": (0, 1, 3)},
    "min_tokens": {"min_tokens": 2},
    "all": {
        "temperature": 1.4,
        "top_k": 3,
        "top_p": 0.95,
        "min_p": 0.05,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.4,
        "logit_bias": {0: 0.7},
        "min_tokens": 1,
    },
}
EOS = (2,)  # never ends a text here; only min_tokens acts on it


@cache
def raw_logits(role: str, prefix: tuple[int, ...]) -> np.ndarray:
    """Logits of the target or the drafter after `prefix`: similar, not equal."""
    shared = np.random.default_rng([len(prefix), *prefix]).normal(size=V)
    own = np.random.default_rng([7, len(role), len(prefix), *prefix]).normal(size=V)
    return shared + 0.7 * own


def exact_law(params: SamplingParams) -> dict[tuple[int, ...], float]:
    law: dict[tuple[int, ...], float] = {}
    for text in itertools.product(range(V), repeat=LENGTH):
        prob = 1.0
        for i, token in enumerate(text):
            row = raw_logits("target", text[:i])
            prob *= plain_probs(row.tolist(), params, PROMPT, text[:i], EOS)[token]
        law[text] = prob
    return law


class Served:
    """Both models' served logits, each computed once for all texts of a test."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        # The drafter's own transforms: milder temperature, no truncation, no penalties.
        self._draft_params = SamplingParams(temperature=max(params.temperature, 0.9))
        self._target: dict[tuple[tuple[int, ...], tuple[int, ...]], Logits] = {}
        self._draft: dict[tuple[int, ...], Logits] = {}

    def target(self, output: tuple[int, ...], path: tuple[int, ...]) -> Logits:
        """Served logits after `output` and `path`, the guesses down to the node."""
        if (output, path) not in self._target:
            row, context = raw_logits("target", (*output, *path)), Context(PROMPT, output)
            found = served_logits(row, self.params, context.extended(path), EOS)
            self._target[output, path] = found
        return self._target[output, path]

    def draft(self, prefix: tuple[int, ...]) -> Logits:
        if prefix not in self._draft:
            row = raw_logits("draft", prefix)
            self._draft[prefix] = served_logits(row, self._draft_params, Context(PROMPT))
        return self._draft[prefix]


class Round:
    """One draft-and-verify round after `output`, as the engine will run it."""

    def __init__(self, served: Served, seed: int, output: tuple[int, ...]) -> None:
        self.served, self.output = served, output
        self.params = served.params
        self.noise = Noise(seed)

    def propose(self, widths: Sequence[int], round_idx: int) -> Proposal:
        builder = ProposalBuilder()
        counter = itertools.count()
        level: list[tuple[int, tuple[int, ...]]] = [(ROOT, ())]
        for width in widths:
            below = {}
            for node, prefix in level:
                for token, q in self._guesses(prefix, width, counter, round_idx):
                    below[builder.add(node, token, q)] = (*prefix, token)
            level = list(below.items())
        return builder.build()

    def _guesses(
        self, prefix: tuple[int, ...], width: int, counter: itertools.count[int], round_idx: int
    ) -> list[tuple[int, Any]]:
        logits = self.served.draft((*self.output, *prefix))
        if self.params.acceptance is Acceptance.COUPLED:
            position = len(PROMPT) + len(self.output) + len(prefix)
            tokens = gumbel_top(logits, self.noise, position, width, np.arange(V))
            return [(token, None) for token in tokens]
        uniforms = [
            self.noise.uniform(Stream.DRAFT, round_idx, next(counter)) for _ in range(width)
        ]
        return list(draw_siblings(softmax(logits), uniforms, replace=True))

    def verify(self, proposal: Proposal, round_idx: int) -> Verdict:
        def logits_at(node: int) -> Logits:
            return self.served.target(self.output, proposal.path_tokens(node))

        if self.params.acceptance is Acceptance.COUPLED:
            position = len(PROMPT) + len(self.output)
            return coupled(proposal, logits_at, self.noise, position)
        return rejection(proposal, lambda node: softmax(logits_at(node)), self.noise, round_idx)


def speculative_text(served: Served, seed: int, widths: Sequence[int]) -> tuple[int, ...]:
    output: tuple[int, ...] = ()
    round_idx = 0
    while len(output) < LENGTH:
        this = Round(served, seed, output)
        output += this.verify(this.propose(widths, round_idx), round_idx).tokens
        round_idx += 1
    return output[:LENGTH]


def law_p_value(params: SamplingParams, widths: Sequence[int], law_params: SamplingParams) -> float:
    served = Served(params)
    counts = Counter(speculative_text(served, seed, widths) for seed in range(NUM_TEXTS))
    law = exact_law(law_params)
    return chi2_p_value([counts[text] for text in law], [NUM_TEXTS * p for p in law.values()])


@pytest.mark.slow
@pytest.mark.parametrize("acceptance", [Acceptance.COUPLED, Acceptance.REJECTION])
@pytest.mark.parametrize("option", OPTIONS)
def test_texts_have_the_served_law(option: str, acceptance: Acceptance) -> None:
    params = SamplingParams(acceptance=acceptance, **OPTIONS[option])
    widths = [2, 1] if option in ("none", "all", "frequency") else [1, 1]
    assert law_p_value(params, widths, params) > FALSE_ALARM_RATE


@pytest.mark.slow
@pytest.mark.parametrize("option", ["temperature", "top_p", "repetition", "frequency", "bias"])
def test_the_test_has_power(option: str) -> None:
    """The same counts against the law without the option: a real deviation is seen."""
    params = SamplingParams(acceptance="rejection", **OPTIONS[option])  # type: ignore[arg-type]
    assert law_p_value(params, [1], SamplingParams()) < FALSE_ALARM_RATE


@pytest.mark.slow
def test_coupled_texts_do_not_depend_on_the_drafter() -> None:
    served = Served(SamplingParams(**OPTIONS["all"]))
    for seed in range(300):
        plain = speculative_text(served, seed, [])
        assert speculative_text(served, seed, [1, 1, 1]) == plain
        assert speculative_text(served, seed, [3, 2]) == plain
