"""Every kind of head: a description, the shapes of its weights, and how its drafter is built.

A new kind needs a file in this folder, an entry here, and its form in `training/torch_heads.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from forerun.drafters.base import Drafter
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.fed_back import FedBack
from forerun.drafters.heads.folder import HeadFolder
from forerun.drafters.heads.kinds.block import Block
from forerun.drafters.heads.kinds.block_head import BlockHead, block_shapes
from forerun.drafters.heads.kinds.blockwise import BlockwiseHeads, blockwise_shapes
from forerun.drafters.heads.kinds.distilled import distilled_shapes, load_distilled
from forerun.drafters.heads.kinds.eagle3_head import Eagle3Head, eagle3_shapes
from forerun.drafters.heads.kinds.look_ahead import LookAhead, pass_shapes
from forerun.drafters.heads.kinds.medusa import MedusaHeads, medusa_shapes
from forerun.drafters.heads.kinds.mtp import MtpHead, mtp_shapes
from forerun.drafters.heads.last_hidden import LastHidden
from forerun.kernels import TappedKernels
from forerun.models.llama import LlamaModel


class HeadKind(NamedTuple):
    about: str
    shapes: Callable[[HeadConfig], dict[str, tuple[int, ...]]]
    build: Callable[[HeadFolder, TappedKernels, LlamaModel], Drafter]  # for this target


def build_head(folder: HeadFolder, target: LlamaModel) -> Drafter:
    """Build a head's drafter on the target's kernels."""
    kernels = target.kernels
    assert isinstance(kernels, TappedKernels), kernels.name
    return HEAD_KINDS[folder.config.kind].build(folder, kernels, target)


HEAD_KINDS: Final[Mapping[str, HeadKind]] = {
    "eagle3": HeadKind(
        "a head trained for this target by EAGLE-3's recipe",
        eagle3_shapes,
        lambda folder, k, target: FedBack(Eagle3Head.load(folder, k, target.embedding)),
    ),
    "block": HeadKind(
        "a head trained for this target that guesses a block in one pass",
        block_shapes,
        lambda folder, k, target: Block(BlockHead.load(folder, k, target.embedding)),
    ),
    "medusa": HeadKind(
        "heads trained for this target by Medusa's recipe",
        medusa_shapes,
        lambda folder, k, target: LastHidden(MedusaHeads(folder, k, target)),
    ),
    "blockwise": HeadKind(
        "feed-forward layers trained for this target, one for each place, under one matrix",
        blockwise_shapes,
        lambda folder, k, _: LastHidden(BlockwiseHeads(folder, k)),
    ),
    "mtp": HeadKind(
        "one more decoder layer of this target, trained to be applied over and over",
        mtp_shapes,
        lambda folder, k, target: FedBack(MtpHead.load(folder, k, target)),
    ),
    "pass": HeadKind(
        "the target itself, over look-ahead embeddings trained for it",
        pass_shapes,
        lambda folder, _, target: LookAhead(folder, target),
    ),
    "distilled": HeadKind(
        "a narrow model of the same tokenizer, trained on this target's text",
        distilled_shapes,
        lambda folder, k, _: load_distilled(folder, k),
    ),
}
