"""Rounds as clients see them with `forerun: {"trace": true}`."""

from __future__ import annotations

from typing import Any

from forerun.engine.step import Round
from forerun.models.text.tokenizer import Tokenizer
from forerun.server.answers.logprobs import spelled


def trace(done: Round, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return what a round guessed and what became of it.

    `proposal` is a tree: node i follows node `parents[i]`, and -1 is the last token before the
    tree. `chances` are the drafter's probabilities of its guesses, null if it gives none;
    `rejected` are the nodes that were not accepted.
    """
    proposal, verdict = done.proposal, done.verdict
    chances: list[float | None] = [None] * len(proposal)
    for draw in proposal.draws:
        chances[draw.node] = draw.chance
    emitted = zip(verdict.tokens, verdict.origins, strict=True)
    return {
        "drafter": done.drafter if len(proposal) else None,
        "choice": done.choice.summary if done.choice else None,
        "proposal": {
            "parents": list(proposal.tree.parents),
            "token_ids": [int(token) for token in proposal.tokens],
            "tokens": [spelled(tokenizer, int(token)) for token in proposal.tokens],
            "chances": chances,
        },
        "accepted": list(verdict.path),
        "rejected": sorted(set(range(len(proposal))) - set(verdict.path)),
        "emitted": [
            {"token_id": token, "token": spelled(tokenizer, token), "origin": str(origin)}
            for token, origin in emitted
        ],
    }
