"""Medusa (Cai et al. 2024): one small head per place to guess, all on the last hidden state.

    h = norm(the target's residual stream after its last layer, at the last token but one)
    logits of guess i = matrix i · (h + silu(linear i · h))

Guess 0 is the token after the last one. Heads do not see each other's guesses, so what stands after
a path depends on its length alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from forerun.drafters.base import Budget, RequestView
from forerun.drafters.growing import Path as GuessedPath
from forerun.drafters.growing import grow
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.folder import D2T, HeadFolder
from forerun.drafters.law import DraftLaw
from forerun.errors import InvalidWeights
from forerun.interrupts import Uninterrupted
from forerun.kernels import AttentionShape, Norm, Plan, PlanRow, TappedKernels
from forerun.kernels.base import Array, Batch, Store, Weight
from forerun.models.weights.checkpoint import Tensor
from forerun.types import FloatArray, IntArray, Proposal, Span, Verdict

F32 = npt.NDArray[np.float32]

_NO_ATTENTION = AttentionShape(1, 1, 2)


def medusa_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    size = config.target_hidden_size
    shapes: dict[str, tuple[int, ...]] = {"norm.weight": (size,)}
    for idx in range(config.num_guesses):
        shapes[f"{idx}.0.linear.weight"] = (size, size)
        shapes[f"{idx}.0.linear.bias"] = (size,)
        shapes[f"{idx}.1.weight"] = (config.draft_vocab_size, size)
    return {**shapes, D2T: (config.draft_vocab_size,)}


@dataclass(frozen=True)
class _Head:
    gate_up: Weight  # [2E, E]: its linear, and rows that give 1
    out: Weight  # [draft V, E]


class MedusaHeads:
    """Weights on a kernel set, and the pass over them."""

    def __init__(self, folder: HeadFolder, kernels: TappedKernels) -> None:
        config = folder.config
        _check(config, folder.path)
        folder.check(medusa_shapes(config))
        self.config, self._kernels = config, kernels
        self.tokens: IntArray = folder.draft_tokens()
        self._norm = Norm(kernels.load_vector(folder, "norm.weight"), config.rms_norm_eps)
        source = _WithOnes(folder)
        self._heads = [_head(source, kernels, idx) for idx in range(config.num_guesses)]
        self._store = kernels.new_store(_NO_ATTENTION, 1, 1)  # nothing is ever written to it

    def guesses(self, hidden: FloatArray) -> F32:
        """From hidden states [T, E], what stands at each place to guess: [T, guesses, draft V]"""
        span = Span.all_wanted(0, (0,))
        plan = Plan(tuple(PlanRow(span, np.array([slot])) for slot in range(len(hidden))))
        with Uninterrupted():
            batch = self._kernels.begin(plan, _NO_ATTENTION, np.ones(1), [hidden])
            last = self._kernels.run(self._pass, batch, self._store)
            taps = [rows[: len(last)] for rows in self._kernels.taps(batch)]
            return np.stack([*taps, last], axis=1)

    def _pass(self, batch: Batch, _store: Store) -> F32:
        k = self._kernels
        _, h = k.add_norm(k.given(batch, 0), None, self._norm)
        for head in self._heads[:-1]:
            k.tap(k.linear(self._block(h, head), head.out), batch)
        return k.logits(self._block(h, self._heads[-1]), self._heads[-1].out)

    def _block(self, h: Array, head: _Head) -> Array:
        """h + silu(linear · h); h itself stays."""
        k = self._kernels
        copy = k.concat([h])
        return k.add_norm(copy, k.silu_mul(k.linear(h, head.gate_up)), self._norm)[0]


class Medusa:
    """Heads of one target, batched over requests; all it keeps is the last hidden state of each."""

    picks = False

    def __init__(self, heads: MedusaHeads) -> None:
        self._heads = heads
        self._last: dict[int, tuple[int, FloatArray] | None] = {}  # position, hidden state [E]

    @property
    def layers(self) -> tuple[int, ...]:
        return self._heads.config.layers

    @property
    def num_requests(self) -> int:
        return len(self._last)

    def begin(self, request: RequestView) -> None:
        self._last[request.id] = None

    def is_behind(self, request: RequestView) -> bool:  # noqa: ARG002
        return False

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:
        found = rows[self.layers[0]]
        self._last[request.id] = (start + len(found) - 1, found[-1])

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        """Hidden states came before."""

    def end(self, request: RequestView) -> None:
        self._last.pop(request.id, None)

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        known = [self._hidden(request) for request in requests]
        hidden = [row for row in known if row is not None]
        laws = iter(self._heads.guesses(np.stack(hidden)) if hidden else ())
        return [
            Proposal.empty() if row is None else self._grown(request, budget, next(laws))
            for request, budget, row in zip(requests, budgets, known, strict=True)
        ]

    def _hidden(self, request: RequestView) -> FloatArray | None:
        """That of the last token but one, if it is known."""
        last = self._last[request.id]
        return last[1] if last is not None and last[0] == len(request.tokens) - 2 else None

    def _grown(self, request: RequestView, budget: Budget, logits: F32) -> Proposal:
        tokens, vocab_size = self._heads.tokens, self._heads.config.target_vocab_size

        def law_after(path: GuessedPath) -> DraftLaw | None:
            if len(path) == len(logits):
                return None
            return DraftLaw.served(logits[len(path)], request, path, vocab_size, tokens)

        return grow(request, budget, law_after)


@dataclass(frozen=True)
class _WithOnes:
    """A folder that also has a matrix of zeros and a bias of ones: silu(x) · 1 is silu(x)."""

    folder: HeadFolder

    def tensor(self, name: str) -> Tensor:
        if name not in ("zeros", "ones"):
            return self.folder.tensor(name)
        array = self.float32(name)
        return Tensor(name, array.shape, "F32", array.reshape(len(array), -1).view(np.uint8))

    def float32(self, name: str) -> F32:
        size = self.folder.config.target_hidden_size
        if name == "zeros":
            return np.zeros((size, size), np.float32)
        return np.ones(size, np.float32) if name == "ones" else self.folder.float32(name)


def _head(source: _WithOnes, kernels: TappedKernels, idx: int) -> _Head:
    linear = f"{idx}.0.linear"
    return _Head(
        kernels.load_matrix(source, [f"{linear}.weight", "zeros"], [f"{linear}.bias", "ones"]),
        kernels.load_matrix(source, [f"{idx}.1.weight"]),
    )


def _check(config: HeadConfig, path: Path) -> None:
    if config.num_guesses < 1 or config.layers != (config.target_num_layers,):
        raise InvalidWeights(
            f"{path}: Medusa needs 1 or more guesses and the target's last layer; it has "
            f"{config.num_guesses} guesses and layers {list(config.layers)}: train again."
        )
