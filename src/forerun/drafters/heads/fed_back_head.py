"""Heads whose outputs are fed back to guess further.

row j    token j + 1, and the target's hidden states at position j      known
         a guess,     and the head's own output at its parent           guessed
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from forerun.cache import KVCache
from forerun.drafters.heads.cached_head import CachedHead, Features
from forerun.interrupts import Uninterrupted
from forerun.kernels import Body, ChainKernels, ChainNoise, Plan
from forerun.kernels.base import Array, Batch, Store, Weight
from forerun.types import FloatArray

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FedBackHead(CachedHead):
    head: Weight  # [draft V, E]

    @abstractmethod
    def fused(self, batch: Batch) -> Array:
        """Return the known features in the form in which outputs are fed back: [T, E]"""

    @abstractmethod
    def layer(self, x: Array, batch: Batch, store: Store) -> tuple[Array, Array]:
        """Return, for the wanted rows, the output to feed back and the input of `head`."""

    @cached_property
    def ids(self) -> Weight:
        """`tokens` on the kernel set, which picks from them."""
        assert self.chain_kernels is not None, self.kernels.name
        return self.chain_kernels.load_array(self.tokens)

    def prepare(self) -> None:
        if self.chain_kernels is not None:
            assert len(self.ids)

    def known(self, plan: Plan, cache: KVCache, features: FloatArray) -> tuple[F32, F32]:
        """Run over `features` [T, layers · E]: logits [R, draft V], outputs to feed back [R, E]."""
        given = np.split(features, len(self.config.layers), axis=1)
        return self._run(self._known, plan, cache, given)

    def guessed(self, plan: Plan, cache: KVCache, fed_back: FloatArray) -> tuple[F32, F32]:
        """Run over outputs that are fed back [T, E]; returns the same as `known`."""
        return self._run(self._guessed, plan, cache, [fed_back])

    def chain(
        self, plan: Plan, cache: KVCache, features: Features, depth: int, noise: ChainNoise
    ) -> F32:
        """Run `known`, then one guess after another, in one pass."""
        k = self.chain_kernels
        assert k is not None, self.kernels.name

        def given() -> list[FloatArray]:
            return np.split(features(), len(self.config.layers), axis=1)

        with Uninterrupted():
            batch = k.begin(plan, self.shape, self.inv_freq, given, noise)
            return k.run(_Chain(self, k, depth), batch, cache.store)

    def _run(
        self, body: Body, plan: Plan, cache: KVCache, given: list[FloatArray]
    ) -> tuple[F32, F32]:
        with Uninterrupted():
            batch = self.kernels.begin(plan, self.shape, self.inv_freq, given)
            logits = self.kernels.run(body, batch, cache.store)
            (fed_back,) = self.kernels.taps(batch)
            return logits, fed_back[: len(logits)]

    def _known(self, batch: Batch, store: Store) -> F32:
        return self._logits(self.fused(batch), batch, store)

    def _guessed(self, batch: Batch, store: Store) -> F32:
        return self._logits(self.kernels.given(batch, 0), batch, store)

    def _logits(self, x: Array, batch: Batch, store: Store) -> F32:
        fed_back, h = self.layer(x, batch, store)
        self.kernels.tap(fed_back, batch)
        return self.kernels.logits(h, self.head)


@dataclass(frozen=True)
class _Chain:
    """A pass body; equal to another one of the same head and depth, so that it can be replayed."""

    head: FedBackHead
    kernels: ChainKernels
    depth: int

    def __call__(self, batch: Batch, store: Store) -> F32:
        k, head = self.kernels, self.head
        num_known = k.num_known(batch)
        part = k.part(batch, 0, num_known)
        x, picks = head.fused(part), k.new_picks(batch, self.depth)
        for place in range(self.depth):
            x, h = head.layer(x, part, store)
            first = num_known + place
            if place + 1 == self.depth:
                k.pick(k.linear(h, head.head), head.ids, batch, picks, place)
            else:
                k.pick(k.linear(h, head.head), head.ids, batch, picks, place, token=first)
                part = k.part(batch, first, first + 1)
        return k.finish(picks)
