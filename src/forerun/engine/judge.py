"""From scores to a verdict, by the acceptance method of the request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from forerun.engine.request.prompt_logprobs import is_inside
from forerun.engine.request.request import Request
from forerun.kernels import Kernels, Scores
from forerun.sampling import (
    CoupledDraws,
    largest,
    log_probs,
    ranked_logits,
    served_logits,
    served_probs,
)
from forerun.types import Acceptance, FloatArray, Proposal, SamplingParams, Span, Verdict
from forerun.verify import coupled, greedy, lenient, lenient_greedy, match_drawn, rejection

Row = TypeVar("Row", bound=FloatArray)


def draws_of(request: Request, span: Span, proposal: Proposal) -> CoupledDraws | None:
    """Return how the kernels may draw this span's tokens with the pass; None if the logits are
    needed: by another acceptance method, for log-probabilities, or because nothing is drawn."""
    params = request.params
    is_coupled = params.acceptance is Acceptance.COUPLED
    if not is_coupled or params.shows_laws or is_inside(request, span, proposal):
        return None
    position = len(request.tokens)
    return CoupledDraws(params, request.noise, position, request.context, request.end_ids, proposal)


def judge(request: Request, proposal: Proposal, scores: Scores, kernels: Kernels) -> Verdict:
    """Judge `proposal`, given the `scores` [1 + N] after the last emitted token and each node."""

    if (tokens := scores.all_tokens) is not None:  # drawn with the pass
        return match_drawn(proposal, tokens)

    def served(
        transform: Callable[..., Row], params: SamplingParams = request.params
    ) -> Callable[[int], Row]:
        """Return a function that applies `transform` to a node's logits, in its own context."""

        def at(node: int) -> Row:
            context = request.context.extended(proposal.path_tokens(node))
            return transform(scores.row(node + 1), params, context, request.end_ids)

        return at

    def drawn(node: int) -> int | None:
        return scores.token(node + 1)

    params = request.params
    if params.acceptance is Acceptance.COUPLED and params.temperature == 0:
        return greedy(proposal, served(ranked_logits), drawn)
    if params.acceptance is Acceptance.COUPLED:
        position = len(request.tokens)
        logits_at = served(partial(served_logits, weight_sum=kernels.weight_sum))
        return coupled(proposal, logits_at, request.noise, position, kernels.gumbel_argmax, drawn)
    probs = partial(served_probs, weight_sum=kernels.weight_sum)
    if params.acceptance is Acceptance.REJECTION:
        return rejection(proposal, served(probs), request.noise, request.round_idx)
    if params.temperature == 0:
        before_argmax = served(probs, params.before_argmax)
        return lenient_greedy(proposal, before_argmax, params.lenience)
    return lenient(proposal, served(probs), request.noise, request.round_idx, params.lenience)


def shown_log_probs(verdict: Verdict, scores: Scores, num_top: int) -> list[dict[int, float]]:
    """Return, for each emitted token, the target's own log-probabilities of it and of the
    `num_top` most likely tokens."""
    rows = (0, *(node + 1 for node in verdict.path))
    shown = []
    for row, token in zip(rows, verdict.tokens, strict=False):  # a cut verdict needs fewer rows
        logp = log_probs(scores.row(row))
        best = largest(logp, num_top)
        shown.append({int(t): float(logp[t]) for t in (*best, token)})
    return shown
