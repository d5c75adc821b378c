"""From logits to a verdict, by the acceptance the request chose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from forerun.engine.request.request import Request
from forerun.kernels import Kernels
from forerun.sampling import largest, log_probs, ranked_logits, served_logits, served_probs
from forerun.types import Acceptance, FloatArray, Proposal, SamplingParams, Verdict
from forerun.verify import coupled, greedy, lenient, lenient_greedy, rejection

Row = TypeVar("Row", bound=FloatArray)


def judge(
    request: Request, proposal: Proposal, raw_logits: FloatArray, kernels: Kernels
) -> Verdict:
    """`raw_logits` [1 + N, V]: after the last emitted token, then after each node."""

    def served(
        transform: Callable[..., Row], params: SamplingParams = request.params
    ) -> Callable[[int], Row]:
        """`transform` at a node, over that node's own context."""
        context = request.context

        def at(node: int) -> Row:
            path = proposal.path_tokens(node)
            return transform(raw_logits[node + 1], params, context.extended(path), request.end_ids)

        return at

    params = request.params
    if params.acceptance is Acceptance.COUPLED and params.temperature == 0:
        return greedy(proposal, served(ranked_logits))
    if params.acceptance is Acceptance.COUPLED:
        position = len(request.tokens)
        logits_at = served(partial(served_logits, weight_sum=kernels.weight_sum))
        return coupled(proposal, logits_at, request.noise, position, kernels.gumbel_argmax)
    probs = partial(served_probs, weight_sum=kernels.weight_sum)
    if params.acceptance is Acceptance.REJECTION:
        return rejection(proposal, served(probs), request.noise, request.round_idx)
    if params.temperature == 0:
        before_argmax = served(probs, params.before_argmax)
        return lenient_greedy(proposal, before_argmax, params.lenience)
    return lenient(proposal, served(probs), request.noise, request.round_idx, params.lenience)


def shown_log_probs(
    verdict: Verdict, raw_logits: FloatArray, num_top: int
) -> list[dict[int, float]]:
    """For each emitted token, its log-probability and the `num_top` best: the target's own."""
    rows = (0, *(node + 1 for node in verdict.path))
    shown = []
    for row, token in zip(rows, verdict.tokens, strict=False):  # a cut verdict needs fewer rows
        logp = log_probs(raw_logits[row])
        best = largest(logp, num_top)
        shown.append({int(t): float(logp[t]) for t in (*best, token)})
    return shown
