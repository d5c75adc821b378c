"""A round that was begun early is not used if another request comes or its own is aborted."""

from __future__ import annotations

import tempfile
from pathlib import Path

from forerun.engine import LLM
from forerun.kernels import AttentionShape
from forerun.kernels.cuda import CudaKernels
from forerun.models.text.compatibility import tokenizer_hash
from forerun.types import SamplingParams
from tests.drafters.heads.random_heads import block_config, write_block
from tests.gpu.interpreted_heads import HandingOut
from tests.gpu.rounds_begun_early import Watched
from tests.tiny_model import write_tiny_model

PROMPTS = ("abcabc", "bcabca")
PARAMS = SamplingParams(temperature=0.7, seed=3, max_tokens=12, ignore_eos=True)
NUM_PAGES, PAGE_SIZE = 2, 16  # each request needs two in the end
NUM_ALONE = 3  # rounds of a request before it goes


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shape = {"num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "hidden_size": 24}
        path = write_tiny_model(folder / "target", **shape)
        kernels = CudaKernels("float32", device="cpu", recorder=HandingOut())
        shapes = (AttentionShape(2, 1, 12), 1), (AttentionShape(4, 2, 8), 2)  # target, head
        row_bytes = sum(kernels.row_bytes(*shape) for shape in shapes)
        llm = LLM(
            path,
            kernels=kernels,
            max_num_seqs=2,
            max_model_len=24,
            kv_cache_memory=NUM_PAGES * PAGE_SIZE * row_bytes,
            speculative_config=None,
        )
        expected = [tuple(llm.generate(p, PARAMS)[0].outputs[0].token_ids) for p in PROMPTS]
        config = block_config(llm.model.config, tokenizer_hash(llm.tokenizer), layers=(0, 1))
        head = write_block(folder / "head", config)
        method = {"method": "block", "model": str(head)}
        early = llm.with_speculation({**method, "num_speculative_tokens": 2, "adaptive": False})
        assert early.engine.core.cache.pool.num_pages == NUM_PAGES
        early.generate(PROMPTS[0], PARAMS)  # sizes are recorded
        for what in (another_comes, it_is_aborted):
            with Watched() as watched:
                assert what(early) == expected, what
            assert watched.num_taken > 0, what


def another_comes(llm: LLM) -> list[tuple[int, ...]]:
    """A second request comes, while pages are so few that one has to wait for the other."""
    stream = llm.stream(PROMPTS[0], PARAMS)
    tokens = [*next(stream).tokens]  # more, and it would hold both pages
    (other,) = llm.generate(PROMPTS[1], PARAMS)
    tokens += [token for event in stream for token in event.tokens]
    return [tuple(tokens), tuple(other.outputs[0].token_ids)]


def it_is_aborted(llm: LLM) -> list[tuple[int, ...]]:
    """The request is aborted, and its pages go to the next one."""
    stream = llm.stream(PROMPTS[1], PARAMS)
    for _ in range(NUM_ALONE):
        next(stream)
    stream.close()
    return [tuple(llm.generate(p, PARAMS)[0].outputs[0].token_ids) for p in PROMPTS]


if __name__ == "__main__":
    main()
