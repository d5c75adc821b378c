"""How likely the target finds the prompt itself: `SamplingParams.prompt_logprobs`.

Every row of such a prompt's chunks is wanted, where otherwise the last one is. So that all rows are
computed, it shares no prefix with others.
"""

from __future__ import annotations

from forerun.engine.request.request import Request
from forerun.kernels import Scores
from forerun.sampling import largest, log_probs
from forerun.types import Proposal, Span


def chunk_of(request: Request, start: int, num_tokens: int) -> Span:
    """The next tokens of a prompt, with the logits that are wanted of them."""
    chunk = request.tokens[start : start + num_tokens]
    if request.params.prompt_logprobs is not None:
        return Span.all_wanted(start, chunk)
    return Span.prompt_chunk(start, chunk, is_last=len(chunk) == request.num_uncomputed)


def is_inside(request: Request, span: Span, proposal: Proposal) -> bool:
    """Whether nothing follows from a span yet: it ends inside a prompt."""
    return span.start + len(span.tokens) - len(proposal.tokens) < len(request.tokens)


def rows_to_judge(request: Request, span: Span, proposal: Proposal, scores: Scores) -> Scores:
    """Of all rows, those that say what comes next: none inside a prompt."""
    if request.params.prompt_logprobs is None:  # no others are wanted
        return scores
    if is_inside(request, span, proposal):
        return scores[:0]
    num_before = len(scores) - 1 - len(proposal)
    return scores[num_before:] if num_before else scores


def keep_prompt_logprobs(request: Request, span: Span, scores: Scores) -> None:
    """The row after a token is the law of the next; nothing precedes the first one.

    A prompt that is fed again after a preemption is not told twice.
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
