"""The target's log-probabilities of the prompt's own tokens: `SamplingParams.prompt_logprobs`.

For such a request, every row of the prompt's chunks is wanted, where otherwise only the last one
is. It shares no prefix with other requests, so that all of its rows are computed.
"""

from __future__ import annotations

from forerun.engine.request.request import Request
from forerun.kernels import Scores
from forerun.sampling import largest, log_probs
from forerun.types import Proposal, Span


def chunk_of(request: Request, start: int, num_tokens: int) -> Span:
    """Return the span of a prompt's next tokens, and of which of them logits are wanted."""
    chunk = request.tokens[start : start + num_tokens]
    if request.params.prompt_logprobs is not None:
        return Span.all_wanted(start, chunk)
    return Span.prompt_chunk(start, chunk, is_last=len(chunk) == request.num_uncomputed)


def is_inside(request: Request, span: Span, proposal: Proposal) -> bool:
    """Whether the span ends inside the prompt, so that no token can be emitted after it."""
    return span.start + len(span.tokens) - len(proposal.tokens) < len(request.tokens)


def rows_to_judge(request: Request, span: Span, proposal: Proposal, scores: Scores) -> Scores:
    """Return the scores that decide what is emitted: those after the last known token and after
    each guess, none inside a prompt."""
    if request.params.prompt_logprobs is None:  # no other rows are wanted
        return scores
    if is_inside(request, span, proposal):
        return scores[:0]
    num_before = len(scores) - 1 - len(proposal)
    return scores[num_before:] if num_before else scores


def keep_prompt_logprobs(request: Request, span: Span, scores: Scores) -> None:
    """Keep the log-probabilities of the prompt's tokens: each is scored by the row before it, and
    the first by none.

    A prompt that is computed again after a preemption adds nothing.
    """
    num_top = request.params.prompt_logprobs
    if num_top is None:
        return
    found = request.prompt_logprobs
    if not found:
        found.append(None)
    for row, position in enumerate(range(span.start + 1, span.start + len(span) + 1)):
        if position == len(found) < len(request.prompt):
            logp = log_probs(scores.row(row))
            shown = (*largest(logp, num_top), request.prompt[position])
            found.append({int(token): float(logp[token]) for token in shown})
