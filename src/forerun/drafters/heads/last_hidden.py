"""Base of heads without a cache, which read only the last hidden state, and their drafter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.drafters.base import Budget, RequestView
from forerun.drafters.heads.folder import HeadFolder, Shapes
from forerun.drafters.heads.places import Places
from forerun.errors import InvalidWeights
from forerun.interrupts import Uninterrupted
from forerun.kernels import AttentionShape, Norm, Plan, PlanRow, TappedKernels
from forerun.kernels.base import Array, Batch, Store, Weight
from forerun.models.llama import LlamaModel
from forerun.types import FloatArray, IntArray, Proposal, Span, Verdict

F32 = npt.NDArray[np.float32]

_NO_ATTENTION: Final = AttentionShape(1, 1, 2)


class LastHiddenHeads(ABC):
    """A head's weights on a kernel set, and the pass over them."""

    def __init__(
        self,
        folder: HeadFolder,
        kernels: TappedKernels,
        shapes: Shapes,
        target: LlamaModel | None = None,
    ) -> None:
        """Load and check the weights; without a norm in the folder, the `target`'s is used."""
        config = self.config = folder.config
        if config.num_guesses < 1 or config.layers != (config.target_num_layers,):
            raise InvalidWeights(
                f"{folder.path}: {config.kind} needs 1 or more guesses and the target's last "
                f"layer; it has {config.num_guesses} guesses and layers {list(config.layers)}: "
                "train again."
            )
        folder.check(shapes)
        self.tokens: IntArray = folder.draft_tokens()
        self.kernels = kernels
        if folder.has("norm.weight"):
            self.norm = Norm(kernels.load_vector(folder, "norm.weight"), config.rms_norm_eps)
        else:
            assert target is not None, folder.path
            self.norm = target.norm
        self._store = kernels.new_store(_NO_ATTENTION, 1, 1)  # nothing is ever written to it

    @abstractmethod
    def places(self, h: Array) -> Iterator[tuple[Array, Weight]]:
        """Yield, for each place, the input of its matrix and the matrix; `h` is not changed."""

    def guesses(self, hidden: FloatArray) -> F32:
        """Return the logits of each place after hidden states [T, E]: [T, guesses, draft V]"""
        k, span = self.kernels, Span.all_wanted(0, (0,))
        plan = Plan(tuple(PlanRow(span, np.array([slot])) for slot in range(len(hidden))))
        with Uninterrupted():
            batch = k.begin(plan, _NO_ATTENTION, np.ones(1), [hidden])
            last = k.run(self._pass, batch, self._store)
            taps = [rows[: len(last)] for rows in k.taps(batch)]
            return np.stack([*taps, last], axis=1)

    def _pass(self, batch: Batch, _store: Store) -> F32:
        k = self.kernels
        _, h = k.add_norm(k.given(batch, 0), None, self.norm)
        for place, (x, matrix) in enumerate(self.places(h)):
            if place + 1 < self.config.num_guesses:
                k.tap(k.linear(x, matrix), batch)
        return k.logits(x, matrix)

    def added(self, h: Array, delta: Array) -> Array:
        """Return h + delta, on a copy: `add_norm` gives up its first argument."""
        return self.kernels.add_norm(self.kernels.concat([h]), delta, self.norm)[0]


class LastHidden:
    """The drafter over `LastHiddenHeads`, batched over requests.

    Of each request it keeps the last hidden state, and the latest guesses until `commit`."""

    picks = False

    def __init__(self, heads: LastHiddenHeads) -> None:
        self._heads = heads
        self._last: dict[int, tuple[int, FloatArray] | None] = {}  # position, hidden state [E]
        self._places = Places(heads.tokens, heads.config.target_vocab_size)

    @property
    def layers(self) -> tuple[int, ...]:
        return self._heads.config.layers

    @property
    def num_requests(self) -> int:
        return len(self._last)

    def begin(self, request: RequestView) -> None:
        self._last[request.id] = None

    def num_behind(self, request: RequestView) -> int:  # noqa: ARG002
        return 0

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:
        found = rows[self.layers[0]]
        self._last[request.id] = (start + len(found) - 1, found[-1])

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        """Count how the latest guesses did; `tapped` has brought the hidden states already."""
        self._places.judge(request, verdict)

    def end(self, request: RequestView) -> None:
        self._last.pop(request.id, None)
        self._places.forget(request)

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        pairs = zip(requests, budgets, strict=True)
        known = [self._hidden(request) if budget.depth else None for request, budget in pairs]
        hidden = [row for row in known if row is not None]
        laws = iter(self._heads.guesses(np.stack(hidden)) if hidden else ())
        return [
            Proposal.empty() if row is None else self._places.grown(request, budget, next(laws))
            for request, budget, row in zip(requests, budgets, known, strict=True)
        ]

    def _hidden(self, request: RequestView) -> FloatArray | None:
        """Return the hidden state of the last token but one, if it is known."""
        last = self._last[request.id]
        return last[1] if last is not None and last[0] == len(request.tokens) - 2 else None
