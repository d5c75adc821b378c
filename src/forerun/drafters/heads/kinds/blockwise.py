"""Blockwise heads (Stern et al. 2018): a feed-forward layer per place to guess, one matrix for all.

    h = norm(the target's residual stream after its last layer, at the last token but one)
    logits of guess i = lm_head · (h + down i · (silu(gate i · h) ∘ up i · h))

The layer is gated as in the target's family. In training `lm_head` starts as the target's rows of
the draft vocabulary. Places do not see each other's guesses.
"""

from __future__ import annotations

from collections.abc import Iterator

from forerun.drafters.heads.cached_head import HeadLoader
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.folder import D2T, HeadFolder
from forerun.drafters.heads.last_hidden import LastHiddenHeads
from forerun.kernels import TappedKernels
from forerun.kernels.base import Array, Weight


def blockwise_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    size, width = config.target_hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {"norm.weight": (size,)}
    for idx in range(config.num_guesses):
        shapes[f"places.{idx}.gate_proj.weight"] = (width, size)
        shapes[f"places.{idx}.up_proj.weight"] = (width, size)
        shapes[f"places.{idx}.down_proj.weight"] = (size, width)
    return {
        **shapes,
        "lm_head.weight": (config.draft_vocab_size, size),
        D2T: (config.draft_vocab_size,),
    }


class BlockwiseHeads(LastHiddenHeads):
    def __init__(self, folder: HeadFolder, kernels: TappedKernels) -> None:
        super().__init__(folder, kernels, blockwise_shapes(folder.config))
        loader, places = HeadLoader(folder, kernels), range(self.config.num_guesses)
        gate_up = (loader.matrix(*(f"places.{i}.{p}_proj" for p in ("gate", "up"))) for i in places)
        down = (loader.matrix(f"places.{i}.down_proj") for i in places)
        self._layers = list(zip(gate_up, down, strict=True))
        self._head = loader.matrix("lm_head")

    def places(self, h: Array) -> Iterator[tuple[Array, Weight]]:
        k = self.kernels
        for gate_up, down in self._layers:
            yield self.added(h, k.linear(k.silu_mul(k.linear(h, gate_up)), down)), self._head
