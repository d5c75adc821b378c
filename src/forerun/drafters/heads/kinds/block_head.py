"""A head that guesses a block in one pass, in the line of DFlash and P-EAGLE (2026).

    row j      token j + 1, and the target's hidden states at position j
    place d    the same as the last row, and a learnt vector of the place; d = 1, 2, …

    x = fc([norm(embedding) ; norm(feature of each layer)]) + vector of the place
    x = x + attention(norm(x)) ; x = x + mlp(norm(x))           for each layer, causal
    h = norm(x) ; logits of the place = lm_head · h             of the draft vocabulary

A place does not know which token was guessed before it. Its dependence on that token is a product
of low rank, gated by h (a Markov step), which is cheap enough to run place after place:

    logits of place d += out · ((1 + gate · h) ∘ embedding of the guess at d - 1)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from forerun.cache import KVCache
from forerun.drafters.heads.cached_head import (
    CachedHead,
    DecoderLayer,
    Features,
    HeadLoader,
    check_sizes,
    layer_shapes,
)
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.folder import D2T, HeadFolder
from forerun.interrupts import Uninterrupted
from forerun.kernels import ChainKernels, ChainNoise, Norm, Plan, TappedKernels
from forerun.kernels.base import Array, Batch, Store, Weight
from forerun.types import FloatArray, IntArray

F32 = npt.NDArray[np.float32]


def block_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the head's weights."""
    c, size = config, config.target_hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        **{f"fc_norm.{idx}.weight": (size,) for idx in range(len(c.layers) + 1)},
        "fc.weight": (size, (len(c.layers) + 1) * size),
        "places.weight": (c.num_guesses - 1, size),
    }
    for idx in range(c.num_hidden_layers):
        shapes |= layer_shapes(config, f"layers.{idx}")
    return shapes | {
        "norm.weight": (size,),
        "lm_head.weight": (c.draft_vocab_size, size),
        "markov.embedding.weight": (c.draft_vocab_size, c.markov_rank),
        "markov.gate.weight": (c.markov_rank, size),
        "markov.out.weight": (c.draft_vocab_size, c.markov_rank),
        D2T: (c.draft_vocab_size,),
    }


@dataclass(frozen=True, eq=False)
class BlockHead(CachedHead):
    """The head's weights, the pass over them, and the Markov step between its places."""

    places: F32  # [places, E]; the first is 0
    fc_norms: tuple[Norm, ...]
    fc: Weight
    layers: tuple[DecoderLayer, ...]
    norm: Norm
    head: Weight
    gate: Weight
    markov_embedding: F32  # [draft V, rank]
    markov_matrix: Weight  # [draft V, rank]
    read_markov_out: Callable[[], F32]  # the same as floats

    @classmethod
    def load(cls, folder: HeadFolder, kernels: TappedKernels, embedding: Weight) -> BlockHead:
        """Load the head; `embedding` is the target's."""
        config = folder.config
        check_sizes(folder, config.num_hidden_layers, config.markov_rank, config.num_guesses - 1)
        folder.check(block_shapes(config))
        loader = HeadLoader(folder, kernels)
        places = folder.float32("places.weight")
        return cls(
            config,
            kernels,
            folder.draft_tokens(),
            embedding,
            np.concatenate((np.zeros_like(places[:1]), places)),
            tuple(loader.norm(f"fc_norm.{idx}") for idx in range(len(config.layers) + 1)),
            loader.matrix("fc"),
            tuple(loader.layer(f"layers.{idx}") for idx in range(config.num_hidden_layers)),
            loader.norm("norm"),
            loader.matrix("lm_head"),
            loader.matrix("markov.gate"),
            folder.float32("markov.embedding.weight"),
            loader.matrix("markov.out"),
            partial(folder.float32, "markov.out.weight"),
        )

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @cached_property
    def markov_out(self) -> F32:
        """[draft V, rank], for Markov steps on the host; read late, since few requests need it."""
        return self.read_markov_out()

    @cached_property
    def markov(self) -> tuple[Weight, Weight, Weight]:
        """Ids, embedding and output matrix of the Markov step, on the kernel set."""
        k = self.chain_kernels
        assert k is not None, self.kernels.name
        return k.load_array(self.tokens), k.load_array(self.markov_embedding), self.markov_matrix

    def prepare(self) -> None:
        if self.chain_kernels is not None:
            assert len(self.markov)

    def run(
        self, plan: Plan, cache: KVCache, features: FloatArray, places: IntArray
    ) -> tuple[F32, F32]:
        """Run over `features` [T, layers · E] at `places` [T].

        Returns the logits [R, draft V] before the Markov step, and its gates [R, rank]."""
        with Uninterrupted():
            given = self._given(features, places)
            batch = self.kernels.begin(plan, self.shape, self.inv_freq, given)
            logits = self.kernels.run(self._pass, batch, cache.store)
            (gates,) = self.kernels.taps(batch)
            return logits, gates[: len(logits)]

    def chain(
        self, plan: Plan, cache: KVCache, features: Features, depth: int, noise: ChainNoise
    ) -> F32:
        """Run the pass and the Markov steps between its places, in one pass."""
        k = self.chain_kernels
        assert k is not None, self.kernels.name

        def given() -> list[FloatArray]:
            known = features()
            num, more = len(known), len(plan) - len(known)
            whole = known[[*range(num), *[num - 1] * more]] if more else known
            unread = more - (depth - 1)
            return self._given(whole, [*[0] * num, *range(1, depth), *[0] * unread])

        with Uninterrupted():
            batch = k.begin(plan, self.shape, self.inv_freq, given, noise)
            return k.run(_Chain(self, k, depth), batch, cache.store)

    def _given(self, features: FloatArray, places: IntArray | list[int]) -> list[FloatArray]:
        size = self.config.target_hidden_size
        parts = [features[:, first : first + size] for first in range(0, features.shape[1], size)]
        return [*parts, self.places[places]]

    def _pass(self, batch: Batch, store: Store) -> F32:
        k, h = self.kernels, self.hidden(batch, store)
        k.tap(k.linear(h, self.gate), batch)
        return k.logits(h, self.head)

    def hidden(self, batch: Batch, store: Store) -> Array:
        """Return h of the wanted rows, the input of `head` and `gate`."""
        k, num = self.kernels, len(self.config.layers)
        parts = [k.embed(self.embedding, batch), *(k.given(batch, idx) for idx in range(num))]
        normed = [k.add_norm(x, None, n)[1] for x, n in zip(parts, self.fc_norms, strict=True)]
        x, delta = k.given(batch, num), k.linear(k.concat(normed), self.fc)
        for idx, layer in enumerate(self.layers):
            x, delta = layer.run(k, x, delta, batch, store, idx)
        return k.add_norm(k.select(x, batch), k.select(delta, batch), self.norm)[1]

    def after(self, guess: int, logits: F32, gate: F32) -> F32:
        """Return a place's logits [draft V], given the target's id of the guess before it."""
        found: F32 = logits + self.markov_out @ self.markov_step(guess, gate)
        return found

    def markov_step(self, guess: int, gate: F32) -> F32:
        """Return what the guess before a place adds to it, as the input of `markov_out`: [rank]"""
        draft_id = int(np.searchsorted(self.tokens, guess))
        step: F32 = (1 + gate) * self.markov_embedding[draft_id]
        return step


@dataclass(frozen=True)
class _Chain:
    """A pass body; equal to another one of the same head and depth, so that it can be replayed."""

    head: BlockHead
    kernels: ChainKernels
    depth: int

    def __call__(self, batch: Batch, store: Store) -> F32:
        k, head = self.kernels, self.head
        ids, table, out = head.markov
        h = head.hidden(batch, store)
        logits, gates = (k.computed(k.linear(h, matrix)) for matrix in (head.head, head.gate))
        picks = k.new_picks(batch, self.depth)
        k.pick(logits, ids, batch, picks, 0)
        for place in range(1, self.depth):
            delta = k.linear(k.gated_row(table, gates, place, picks, place - 1), out)
            k.pick(logits, ids, batch, picks, place, row=place, delta=delta)
        return k.finish(picks)
