"""α from laws that are known beforehand: the known value must come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forerun.bench.measure.alpha import AlphaSums, TargetText, add_text, interval, target_text
from forerun.bench.measure.contenders import fixed_depth
from forerun.bench.measure.teacher_forcing import KnownText, drafter_for, proposals_along
from forerun.drafters import NgramTables, PromptLookup
from forerun.engine import LLM
from forerun.models.text.compatibility import tokenizer_hash
from forerun.sampling import softmax
from forerun.types import SamplingParams
from tests.drafters.heads.random_heads import CONFIGS, write_head

LENIENCE = (1.0, 0.5, 0.1)
PROMPT = (1, 2, 3, 4, 5)


def params(temperature: float) -> SamplingParams:
    return SamplingParams(temperature=temperature, max_tokens=20, seed=3, ignore_eos=True)


def test_a_text_is_scored_as_it_was_generated(llm: LLM) -> None:
    text = target_text(llm, [1, 2, 3], params(0.0))
    assert text.logits.shape == (20, llm.model.config.vocab_size)
    assert tuple(int(row.argmax()) for row in text.logits) == text.output


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_the_target_as_its_own_drafter_always_holds(
    llm: LLM, tiny_path: Path, temperature: float
) -> None:
    config = fixed_depth("draft_model", 1, {"model": str(tiny_path)})
    sums = AlphaSums()
    for idx in range(2):
        text = target_text(llm, [1, 2, 3 + idx], params(temperature))
        add_text(sums, text, drafter_for(llm, config, None), LENIENCE, idx)
    assert (sums.num_guessed, sums.num_silent) == (40, 0)
    for betas in (sums.rejection, sums.coupled, *sums.lenient.values()):
        found = interval(betas, seed=0)
        assert found is not None
        assert found.median == pytest.approx(1, abs=1e-6)


def made_text(temperature: float) -> TargetText:
    """Return a text of a target that always says 1 with 0.6, 2 with 0.3 and 0 with 0.1."""
    logits = np.log(np.tile([0.1, 0.6, 0.3, 1e-9], (2, 1)))
    return TargetText((1, 2, 1, 2), (1, 2), logits, params(temperature), seed=0)


def test_counts_are_the_q_of_ngrams() -> None:
    sums = AlphaSums()
    add_text(sums, made_text(1.0), NgramTables(4, (1,)), (0.5,), 0)
    # Before the first token the counts are 1: 2, 2: 2; before the second 1: 3, 2: 2.
    assert sums.rejection[0] == pytest.approx([0.5 + 0.3, 0.6 + 0.3], abs=1e-6)
    assert sums.lenient[0.5][0] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert 0 < sums.coupled[0][0] <= sums.rejection[0][0]


def test_what_is_copied_is_a_point_mass() -> None:
    sums = AlphaSums()
    add_text(sums, made_text(1.0), PromptLookup(2, 3), (), 0)
    assert sums.rejection[0] == pytest.approx([0.6, 0.3], abs=1e-6)
    assert sums.coupled[0] == pytest.approx([0.6, 0.3], abs=1e-6)


def test_at_temperature_0_lenience_looks_at_p_before_it_is_sharpened() -> None:
    sums = AlphaSums()
    add_text(sums, made_text(0.0), PromptLookup(2, 3), (1.0, 0.6, 0.4), 0)
    assert sums.rejection[0] == [1, 0]
    assert sums.lenient[1.0][0] == [1, 0]
    assert sums.lenient[0.6][0] == [1, 0]  # 0.3 < 0.6 · 0.6
    assert sums.lenient[0.4][0] == [1, 1]


def test_silence_is_counted_apart() -> None:
    sums = AlphaSums()
    text = TargetText((0, 1), (2, 3), np.zeros((2, 4)), params(1.0), seed=0)
    add_text(sums, text, PromptLookup(1, 2), (), 0)
    assert (sums.num_guessed, sums.num_silent, sums.num_tokens) == (0, 2, 2)
    assert interval(sums.rejection, 0) is None


def test_the_draft_model_is_asked_with_all_that_came_before(llm: LLM, tiny_path: Path) -> None:
    """Its q is its served law at every prefix, not only at the first."""
    text = target_text(llm, [1, 2, 3], params(1.0))
    config = fixed_depth("draft_model", 1, {"model": str(tiny_path)})
    drafter = drafter_for(llm, config, None)
    known = KnownText(0, text.prompt, text.params.with_(acceptance="rejection"), 0)
    for row, proposal in zip(
        text.logits, proposals_along(drafter, known, text.output, 1, llm.model), strict=True
    ):
        law_q = proposal.draws[0].probs_q
        assert law_q is not None
        np.testing.assert_allclose(law_q, softmax(row.astype(np.float64)), atol=1e-5)


def test_the_interval_draws_texts_again_not_tokens() -> None:
    found = interval([[1.0] * 50, [0.0] * 50], seed=0)
    assert found is not None
    assert (found.median, found.num) == (0.5, 100)
    assert (found.low, found.high) == (0, 1)


@pytest.mark.parametrize("kind", CONFIGS)
def test_heads_hear_the_hidden_states_of_the_text(
    tiny_path: Path, tmp_path: Path, kind: str
) -> None:
    """So heads guess before every token, and their guesses are those that the engine would make."""
    llm = LLM(tiny_path, speculative_config=None, num_threads=1)
    head = CONFIGS[kind](llm.model.config, tokenizer_hash(llm.tokenizer))
    path = write_head(tmp_path / kind, head)
    config = fixed_depth(kind, 1, {"model": str(path)})
    asked = params(0.0).with_(max_tokens=12, ignore_eos=True)
    text = target_text(llm, PROMPT, asked)
    known = KnownText(0, text.prompt, asked, 0)
    drafter = drafter_for(llm, config, None)
    along = list(proposals_along(drafter, known, text.output, 1, llm.model))
    assert all(len(proposal) == 1 for proposal in along)
    sums = AlphaSums()
    add_text(sums, text, drafter, (), 1)
    assert sums.num_silent == 0
    hits = [proposal.tokens[0] == token for proposal, token in zip(along, text.output, strict=True)]
    made, accepted, idx = 0, 0, 1  # the first token comes with the prompt, the last needs no guess
    while idx < len(hits) - 1:
        made, accepted, idx = made + 1, accepted + hits[idx], idx + 1 + hits[idx]
    stats = llm.with_speculation(config).generate(list(PROMPT), asked)[0].outputs[0].stats
    assert (stats["draft_tokens"], stats["accepted_tokens"]) == (made, accepted)
