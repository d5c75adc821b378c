"""Plain decoding on the CPU kernels, which may be told the slots of the next rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from forerun.cache import BlockTable, KVCache, next_slots
from forerun.kernels import Plan, Scores
from forerun.kernels.cpu import CpuKernels
from forerun.models.config import ModelConfig
from forerun.models.llama import LlamaModel, Taps
from forerun.sampling import Context, CoupledDraws, Noise
from forerun.types import Proposal, SamplingParams, Span
from tests.contracts.kernel_sets import CACHE_DIR
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint, tiny_config

# A pass takes a millisecond or two, so other calls come while it is in flight.
SLOW = tiny_config(hidden_size=512, intermediate_size=1536, num_heads=8, head_dim=64)
GREEDY, DRAWN = SamplingParams(temperature=0.0), SamplingParams(temperature=1.0, seed=7)


@dataclass
class Text:
    """One request; all of its `tokens` but the last have KV rows."""

    table: BlockTable
    tokens: list[int]
    params: SamplingParams = GREEDY
    noise: Noise = field(default_factory=lambda: Noise(7))


class Decoding:
    """Decodes texts. `is_early`: every plan names the slots of the next pass's rows."""

    def __init__(self, *, is_early: bool, config: ModelConfig = FAMILIES["smollm2"]) -> None:
        self.is_early = is_early
        self.kernels = CpuKernels(num_threads=2, cache_dir=CACHE_DIR)
        self.model = LlamaModel.load(TinyCheckpoint(config), self.kernels)
        self.cache = self.new_cache()
        self.tapped: tuple[int, ...] = ()  # layers whose hidden states are asked for
        self.taps: list[list[float]] = []  # of all passes

    def new_cache(self) -> KVCache:
        self.cache = self.model.new_cache(num_pages=64, page_size=4)
        return self.cache

    def text(self, prompt: Sequence[int], params: SamplingParams = GREEDY) -> Text:
        text = Text(self.cache.new_table(), list(prompt), params)
        self.read(text, prompt[:-1])
        return text

    def read(self, text: Text, tokens: Sequence[int]) -> None:
        span = Span.prompt_chunk(text.table.reserve(len(tokens)), tuple(tokens), is_last=True)
        self.model.forward(Plan.build([(span, text.table)]), self.cache)

    def step(self, *texts: Text) -> Scores:
        spans = [Span.all_wanted(t.table.reserve(1), t.tokens[-1:]) for t in texts]
        draws = [
            CoupledDraws(t.params, t.noise, len(t.tokens), Context(), (), Proposal.empty())
            for t in texts
        ]
        following = next_slots([(t.table, 1) for t in texts]) if self.is_early else None
        plan = Plan.build(zip(spans, (t.table for t in texts), strict=True), following)
        taps = Taps(self.tapped) if self.tapped else None
        scores = self.model.draw(plan, self.cache, draws, taps)
        if taps is not None:
            self.taps += [rows.tolist() for rows in taps.found]
        return scores

    def go_on(self, num: int, *texts: Text) -> None:
        for _ in range(num):
            tokens = self.step(*texts).all_tokens
            assert tokens is not None
            for text, token in zip(texts, tokens, strict=True):
                text.tokens.append(token)
