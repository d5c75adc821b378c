"""The acceptance rate α, measured as in the paper (§4.2): over text that the target generated.

β at a prefix is computed from the distributions p and q, not from draws; α is its mean. q is what
the drafter would draw its next guess from: counts for n-grams, the served distribution for draft
models, a point mass for copied tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from forerun.bench.measure.bootstrap import Interval
from forerun.bench.measure.teacher_forcing import KnownText, proposals_along, text_logits
from forerun.drafters import Drafter
from forerun.engine import LLM
from forerun.models.llama import LlamaModel
from forerun.sampling import Context, Logits, Probs, served_probs
from forerun.theory.acceptance import beta_coupled, beta_lenient, beta_rejection
from forerun.types import Acceptance, Proposal, SamplingParams


@dataclass(frozen=True)
class TargetText:
    """An answer of the target, with its raw logits [T, V] before each token of `output`."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    logits: Logits
    params: SamplingParams
    seed: int
    model: LlamaModel | None = None  # for drafters that look at its hidden states

    def law(self, idx: int, params: SamplingParams) -> Probs:
        """Return p before token `idx`, as served."""
        return served_probs(self.logits[idx], params, Context(self.prompt, self.output[:idx]))


@dataclass
class AlphaSums:
    """The values of β at the prefixes of many texts, one list per text."""

    rejection: list[list[float]] = field(default_factory=list)
    coupled: list[list[float]] = field(default_factory=list)
    lenient: dict[float, list[list[float]]] = field(default_factory=dict)
    num_silent: int = 0  # prefixes at which the drafter guessed nothing

    @property
    def num_guessed(self) -> int:
        return sum(map(len, self.rejection))

    @property
    def num_tokens(self) -> int:
        return self.num_guessed + self.num_silent


def target_text(llm: LLM, prompt: Sequence[int], params: SamplingParams) -> TargetText:
    """Let the target answer, then compute the logits of all positions of the answer."""
    output = llm.generate(list(prompt), params)[0].outputs[0].token_ids
    logits = text_logits(llm.model, prompt, output).astype(np.float64)
    assert params.seed is not None, "a text is reproducible"
    return TargetText(tuple(prompt), tuple(output), logits, params, params.seed, llm.model)


def add_text(
    sums: AlphaSums, text: TargetText, drafter: Drafter, lenience: Sequence[float], idx: int
) -> None:
    """Ask the drafter at every prefix of `text`; append the chances that its guess is accepted."""
    for bucket in (sums.rejection, sums.coupled):
        bucket.append([])
    for factor in lenience:
        sums.lenient.setdefault(factor, []).append([])
    for position, (law_p, law_q) in enumerate(_laws(text, drafter, idx)):
        if law_q is None:
            sums.num_silent += 1
            continue
        sums.rejection[-1].append(beta_rejection(law_p, law_q))
        sums.coupled[-1].append(beta_coupled(law_p, law_q))
        for factor in lenience:
            sums.lenient[factor][-1].append(_lenient(text, position, law_p, law_q, factor))


def _laws(text: TargetText, drafter: Drafter, idx: int) -> Iterator[tuple[Probs, Probs | None]]:
    """Yield (p, q) before each token of the text; q is None where the drafter guesses nothing.

    The drafter is asked under `rejection`, since it then records the q that it drew from.
    """
    params = text.params.with_(acceptance=Acceptance.REJECTION)
    known = KnownText(idx, text.prompt, params, text.seed)
    along = proposals_along(drafter, known, text.output, depth=1, model=text.model)
    with closing(along) as proposals:
        for position, proposal in enumerate(proposals):
            law_p = text.law(position, params)
            yield law_p, _law_q(proposal, len(law_p))


def _law_q(proposal: Proposal, vocab_size: int) -> Probs | None:
    if not len(proposal):
        return None
    draw = proposal.draws[0]
    if draw.probs_q is not None:
        return np.asarray(draw.probs_q, dtype=np.float64)
    law_q = np.zeros(vocab_size)
    law_q[proposal.tokens[draw.node]] = 1.0
    return law_q


def _lenient(text: TargetText, position: int, law_p: Probs, law_q: Probs, factor: float) -> float:
    """Return β of A.5. At temperature 0 it accepts where p(x) ≥ l·max(p), p before sharpening."""
    if text.params.temperature > 0:
        return beta_lenient(law_p, law_q, factor)
    soft = text.law(position, text.params.with_(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0))
    accepted = soft >= factor * soft.max()
    return float(law_q[accepted].sum())


def interval(betas: Sequence[Sequence[float]], seed: int) -> Interval | None:
    """Return the mean over all prefixes; its bootstrap interval resamples texts, not tokens."""
    sums = np.array([sum(row) for row in betas if row])
    counts = np.array([len(row) for row in betas if row])
    if not len(counts):
        return None
    drawn = np.random.default_rng(seed).integers(0, len(counts), size=(2000, len(counts)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return Interval(float(sums.sum() / counts.sum()), float(low), float(high), int(counts.sum()))
