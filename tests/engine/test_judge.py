"""From logits to verdicts: which row, which context, which round, which position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.engine import LLM
from forerun.engine.judge import draws_of, judge, shown_log_probs
from forerun.kernels import ReferenceKernels, Scores
from forerun.sampling import Noise, Stream, log_probs
from forerun.types import (
    ROOT,
    Acceptance,
    Draw,
    Proposal,
    SamplingParams,
    Span,
    Tree,
    Verdict,
)
from tests.engine.known_answer import new_request

V = 6
#   ROOT ─ 0:'1' ─ 2:'3'
#        └ 1:'2' ─ 3:'4' ─ 4:'5'
TREE = Proposal(
    Tree((ROOT, ROOT, 0, 1, 3)), (1, 2, 3, 4, 5), tuple(Draw(node) for node in range(5))
)


class HeardNoise(Noise):
    """The shipped noise, which records the rounds and positions it is asked for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rounds: set[int] = set()
        self.positions: list[int] = []

    def uniform(self, stream: Stream, round_idx: int, draw_idx: int) -> float:
        self.rounds.add(round_idx)
        return super().uniform(stream, round_idx, draw_idx)

    def gumbel(self, position: int, tokens: Any) -> Any:
        self.positions.append(position)
        return super().gumbel(position, tokens)


def logits_choosing(*tokens: int) -> np.ndarray:
    """Return logits in which row i has `tokens[i]` as by far the best token."""
    rows = np.zeros((len(tokens), V))
    rows[np.arange(len(tokens)), tokens] = 50.0
    return rows


# Best tokens: 2 after the root, 4 after node 1 ('2'), 0 after node 3 ('4'); elsewhere 5.
PATH_1_3 = logits_choosing(2, 5, 4, 5, 0, 5)


def judged(plain: LLM, params: SamplingParams, raw: np.ndarray, **request: Any) -> Verdict:
    asked = new_request(plain.tokenizer, params, **request)
    return judge(asked, TREE, Scores(raw), ReferenceKernels())


@pytest.mark.parametrize("acceptance", Acceptance)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_node_has_its_own_row(plain: LLM, acceptance: Acceptance, temperature: float) -> None:
    params = SamplingParams(acceptance=acceptance, temperature=temperature)
    verdict = judged(plain, params, PATH_1_3)
    assert (verdict.path, verdict.tokens) == ((1, 3), (2, 4, 0))


@pytest.mark.parametrize("acceptance", Acceptance)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_node_has_its_own_context(
    plain: LLM, acceptance: Acceptance, temperature: float
) -> None:
    """Penalties count the output and the node's own path: at node 1 token 4, which was emitted, and
    token 2, which leads there."""
    params = SamplingParams(
        acceptance=acceptance, temperature=temperature, frequency_penalty=30.0, max_tokens=9
    )
    once = judged(plain, params, PATH_1_3, output=(4,))
    assert once.tokens == (2, 4, 0)
    twice = judged(plain, params, PATH_1_3, output=(4, 4))
    assert twice.path == (1,)
    raw = PATH_1_3.copy()
    raw[2] = 0.0
    raw[2, [2, 4]] = 80.0, 60.0  # after '2' the model would repeat '2' without the penalty
    assert judged(plain, params, raw).tokens == (2, 4, 0)


@pytest.mark.parametrize("acceptance", Acceptance)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ends_wait_for_min_tokens_along_the_path(
    plain: LLM, acceptance: Acceptance, temperature: float
) -> None:
    params = SamplingParams(acceptance=acceptance, temperature=temperature, min_tokens=2)
    raw = PATH_1_3.copy()
    raw[:, 3] = 90.0  # an end token, better than all others
    assert judged(plain, params, raw, end_ids=(3,)).tokens == (2, 4, 3)


@pytest.mark.parametrize("acceptance", [Acceptance.REJECTION, Acceptance.LENIENT])
def test_uniforms_are_those_of_the_round(plain: LLM, acceptance: Acceptance) -> None:
    request = new_request(plain.tokenizer, SamplingParams(acceptance=acceptance))
    request.noise, request.round_idx = HeardNoise(3), 5
    judge(request, TREE, Scores(np.zeros((6, V))), ReferenceKernels())
    assert request.noise.rounds == {5}


def test_noise_is_that_of_the_position(plain: LLM) -> None:
    request = new_request(plain.tokenizer, SamplingParams(), output=(4, 5))
    request.noise = HeardNoise(3)
    judge(request, TREE, Scores(PATH_1_3), ReferenceKernels())
    assert request.noise.positions == [4, 5, 6]


def test_lenience_counts(plain: LLM) -> None:
    """Lenience accepts more guesses; at temperature 0 those nearly as good as the best, compared
    before top-k and the like narrow the choice."""
    raw = np.log([[0.05, 0.4, 0.1, 0.35, 0.05, 0.05]] * 6)
    options: dict[str, Any] = {"acceptance": Acceptance.LENIENT, "top_k": 1}
    lossy = SamplingParams(temperature=0.0, lenience=0.8, **options)
    assert judged(plain, lossy, raw).tokens == (1, 3, 1)
    strict = SamplingParams(temperature=0.0, lenience=0.9, **options)
    assert judged(plain, strict, raw).tokens == (1, 1)
    loose, exact = (
        sum(
            judge(
                _seeded(plain, seed, lenience), TREE, Scores(raw), ReferenceKernels()
            ).num_accepted
            for seed in range(60)
        )
        for lenience in (0.3, 1.0)
    )
    assert loose > exact + 20


def _seeded(plain: LLM, seed: int, lenience: float) -> Any:
    params = SamplingParams(acceptance=Acceptance.LENIENT, lenience=lenience)
    request = new_request(plain.tokenizer, params)
    request.noise = Noise(seed)
    return request


@pytest.mark.parametrize("num_top", [0, 1, 3, V, V + 2])
def test_log_probabilities_of_a_tree_are_those_along_its_path(num_top: int) -> None:
    raw = np.random.default_rng(0).normal(size=(6, V))
    verdict = Verdict.reached(TREE, 3, 0)
    for num_tokens in (1, 2, 3):
        shown = shown_log_probs(verdict.first(num_tokens), Scores(raw), num_top)
        assert len(shown) == num_tokens
        for row, token, found in zip((0, 2, 4), verdict.tokens, shown, strict=False):
            logp = log_probs(raw[row])
            best = [int(t) for t in np.argsort(-logp)[:num_top]]
            assert list(found) == list(dict.fromkeys((*best, token)))
            assert all(value == logp[t] for t, value in found.items())


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_log_probabilities_do_not_depend_on_the_tree(plain: LLM, temperature: float) -> None:
    """Whichever sibling of a tree is accepted, log-probabilities equal those of plain decoding."""
    llm = plain.with_speculation(
        {"method": "own_layers", "num_layers": 2, "num_branches": 3, "adaptive": False,
         "num_speculative_tokens": 2}
    )  # fmt: skip
    params = SamplingParams(
        temperature=temperature, seed=1, max_tokens=40, logprobs=2, ignore_eos=True
    )
    one, other = (each.generate("abc", params)[0].outputs[0] for each in (plain, llm))
    assert one.token_ids == other.token_ids
    assert one.logprobs == other.logprobs
    assert other.stats["accepted_tokens"] > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_token_that_was_drawn_with_the_pass_is_taken(plain: LLM, temperature: float) -> None:
    """Only a row whose token was not drawn with the pass is drawn from logits; no other logits are
    read."""
    request = new_request(plain.tokenizer, SamplingParams(temperature=temperature))
    logits: list[np.ndarray | None] = [None, None, PATH_1_3[2], None, None, None]
    tokens = [2, None, None, None, 3, None]
    verdict = judge(request, TREE, Scores(logits, tokens), ReferenceKernels())
    assert (verdict.path, verdict.tokens) == ((1, 3), (2, 4, 3))


@pytest.mark.parametrize(
    ("options", "is_drawn"),
    [
        ({"temperature": 0.5}, True),
        ({"temperature": 0.0}, True),
        ({"logprobs": 2}, False),
        ({"prompt_logprobs": 2}, False),
        ({"acceptance": "rejection"}, False),
        ({"acceptance": "lenient", "lenience": 0.5}, False),
    ],
)
def test_whoever_needs_laws_gets_logits(
    plain: LLM, options: dict[str, Any], is_drawn: bool
) -> None:
    request = new_request(plain.tokenizer, SamplingParams(**options), prompt=(1, 2, 3))
    span, inside = Span.all_wanted(0, (1, 2, 3)), Span.all_wanted(0, (1, 2))
    draws = draws_of(request, span, Proposal.empty())
    assert (draws is not None) == is_drawn
    if draws is not None:
        assert (list(draws.nodes), draws.positions) == ([ROOT], [3])
    assert draws_of(request, inside, Proposal.empty()) is None


def test_every_node_is_drawn_at_its_own_position(plain: LLM) -> None:
    request = new_request(plain.tokenizer, SamplingParams(), prompt=(1, 2, 3))
    span = Span.verification(2, 3, TREE)
    draws = draws_of(request, span, TREE)
    assert draws is not None
    assert draws.positions == [3, 4, 4, 5, 5, 6]
