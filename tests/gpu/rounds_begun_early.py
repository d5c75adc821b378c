"""Whole rounds that begin before the host has read the last one, in Triton's interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from forerun.drafters import RequestView
from forerun.drafters.heads.feature_cache import FeatureCache
from forerun.engine import LLM
from forerun.kernels.cuda import CudaKernels
from forerun.kernels.cuda.rounds.begun import Begun
from forerun.models.text.compatibility import tokenizer_hash
from forerun.types import Proposal, SamplingParams
from tests.drafters.heads.random_heads import block_config, eagle3_config, write_block, write_eagle3
from tests.gpu.begun_early import loaded
from tests.gpu.interpreted_heads import HandingOut
from tests.tiny_model import write_tiny_model

SIZES = {"num_speculative_tokens": 2, "adaptive": False}
SAMPLINGS: tuple[dict[str, Any], ...] = ({"temperature": 0.0}, {"temperature": 0.7, "seed": 3})


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shape = {"num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "hidden_size": 24}
        path = write_tiny_model(folder / "target", **shape)
        early, late = (
            loaded(
                path, CudaKernels("float32", device="cpu", recorder=HandingOut(), early_rounds=on)
            )
            for on in (True, False)
        )
        config, ours = early.model.config, tokenizer_hash(early.tokenizer)
        block = write_block(folder / "block", block_config(config, ours, layers=(0, 1)))
        eagle3 = write_eagle3(folder / "eagle3", eagle3_config(config, ours, layers=(0, 1)))
        for sampling in SAMPLINGS:
            rounds_are_the_same(early, late, {"method": "block", "model": str(block)}, sampling)
        rounds_are_the_same(early, late, {"method": "eagle3", "model": str(eagle3)}, SAMPLINGS[1])
        for num_layers in (1, 2):  # the second one's guesses are all accepted
            own = {"method": "own_layers", "num_layers": num_layers}
            rounds_are_the_same(early, late, own, SAMPLINGS[0])


def rounds_are_the_same(
    early: LLM, late: LLM, method: dict[str, Any], sampling: dict[str, Any]
) -> None:
    """The guesses, their laws and the text are the same; only `early` has used early rounds."""
    params = SamplingParams(max_tokens=9, ignore_eos=True, **sampling)
    found = []
    for llm in (early, late):
        speculating = llm.with_speculation({**method, **SIZES})
        with Watched() as watched:
            for _ in range(2):  # sizes are recorded, then replayed
                (answer,) = speculating.generate("ab", params)
                assert answer.outputs[0].stats["drafter_failures"] == 0
        found.append((answer.outputs[0].token_ids, watched.guesses))
        assert (watched.num_taken > 1) == (llm is early), (method, watched.num_taken)
    assert found[0] == found[1], (method, sampling)
    assert found[0][0] == early.generate("ab", params)[0].outputs[0].token_ids


class Watched:
    """What heads guessed, and how many verifications had been begun early."""

    def __init__(self) -> None:
        self.guesses: list[Any] = []
        self.num_taken = 0
        self._patches = ExitStack()

    def __enter__(self) -> Watched:
        proposed, was_for = FeatureCache.propose, Begun.is_for

        def propose(drafter: Any, requests: Sequence[RequestView], *args: Any) -> list[Proposal]:
            proposals = proposed(drafter, requests, *args)
            self.guesses.append(([len(request.tokens) for request in requests], proposals))
            return proposals

        def is_for(begun: Begun, *args: Any) -> bool:
            is_taken = was_for(begun, *args)
            self.num_taken += is_taken
            return is_taken

        self._patches.enter_context(patch.object(FeatureCache, "propose", propose))
        self._patches.enter_context(patch.object(Begun, "is_for", is_for))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()


if __name__ == "__main__":
    main()
