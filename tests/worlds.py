"""Tiny language models with known laws, and drafters that draw from them in every lawful way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from forerun.sampling import Probs, Stream, UniformNoise, draw_siblings
from forerun.types import ROOT, Proposal, ProposalBuilder


@dataclass
class TableModel:
    """A next-token law for every prefix: Dirichlet rows, some with zeros, fixed by a seed."""

    vocab_size: int
    seed: int
    zeros: float = 0.25
    _rows: dict[tuple[int, ...], Probs] = field(default_factory=dict)

    def probs(self, prefix: Sequence[int]) -> Probs:
        key = tuple(prefix)
        if key not in self._rows:
            rng = np.random.default_rng([self.seed, len(key), *key])
            row = rng.dirichlet(np.full(self.vocab_size, 0.7))
            row[rng.random(self.vocab_size) < self.zeros] = 0.0
            if not row.any():
                row[int(rng.integers(self.vocab_size))] = 1.0
            self._rows[key] = row / row.sum()
        return self._rows[key]

    def sequence_prob(self, tokens: Sequence[int], after: Sequence[int] = ()) -> float:
        prefix, prob = list(after), 1.0
        for token in tokens:
            prob *= float(self.probs(prefix)[token])
            prefix.append(token)
        return prob


# A drafter: (the uniform of its i-th draw) -> proposal.
Drafter = Callable[[Callable[[int], float]], Proposal]


def drawn_tree(
    models: Sequence[TableModel], widths: Sequence[int], *, replace: bool = True
) -> Drafter:
    """Draw `widths[d]` children below every node of depth d; sibling k is drawn from model k.

    With one model and `replace=False`, siblings are drawn without replacement and each carries its
    conditional q. With several models, sibling k comes from model k mod len(models), as in
    SpecInfer. Tokens drawn twice below a node become one node with two draws.
    """

    def propose(uniform: Callable[[int], float]) -> Proposal:
        builder = ProposalBuilder()
        counter = itertools.count()
        level: list[tuple[int, tuple[int, ...]]] = [(ROOT, ())]
        for width in widths:
            below: dict[int, tuple[int, ...]] = {}
            for node, prefix in level:
                uniforms = [uniform(next(counter)) for _ in range(width)]
                for token, q in _siblings(models, prefix, uniforms, replace=replace):
                    below[builder.add(node, token, q)] = (*prefix, token)
            level = list(below.items())
        return builder.build()

    return propose


def _siblings(
    models: Sequence[TableModel],
    prefix: tuple[int, ...],
    uniforms: Sequence[float],
    *,
    replace: bool,
) -> list[tuple[int, Probs]]:
    if len(models) == 1:
        return draw_siblings(models[0].probs(prefix), uniforms, replace=replace)
    laws = [models[k % len(models)].probs(prefix) for k in range(len(uniforms))]
    return [draw_siblings(q, [u], replace=True)[0] for q, u in zip(laws, uniforms, strict=True)]


def merged_chains(models: Sequence[TableModel], depth: int) -> Drafter:
    """SpecInfer's tree: each model drafts its own chain; the chains share prefixes."""

    def propose(uniform: Callable[[int], float]) -> Proposal:
        builder = ProposalBuilder()
        counter = itertools.count()
        for model in models:
            node, prefix = ROOT, cast(tuple[int, ...], ())
            for _ in range(depth):
                q = model.probs(prefix)
                token = draw_siblings(q, [uniform(next(counter))], replace=True)[0][0]
                node, prefix = builder.add(node, token, q), (*prefix, token)
        return builder.build()

    return propose


def picked(proposal: Proposal) -> Drafter:
    """A drafter that always makes this proposal, without q, as lookups and predictions do."""
    return lambda _uniform: proposal


def draft_uniforms(noise: UniformNoise, round_idx: int = 0) -> Callable[[int], float]:
    return lambda draw_idx: noise.uniform(Stream.DRAFT, round_idx, draw_idx)
