"""Teacher forcing: what a model says and what a drafter guesses at every prefix of a text."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from forerun.cache.cache_size import CacheSize
from forerun.drafters import OWN, Budget, Drafter, TappedDrafter
from forerun.engine import LLM, SpeculativeConfig
from forerun.engine.setup.building import build_core
from forerun.engine.setup.memory import CacheMemory
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel, Taps
from forerun.sampling import Noise
from forerun.types import FloatArray, Origin, Proposal, SamplingParams, Span, Tree, Verdict

_PASS_TOKENS: Final = 256


@dataclass
class KnownText:
    """A request as a drafter sees it, whose known output is revealed token by token."""

    id: int
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    output: list[int] = field(default_factory=list)
    round_idx: int = 0
    cache_salt: str | None = None
    prediction: tuple[int, ...] = ()
    grammar: None = None

    def __post_init__(self) -> None:
        self.tokens: list[int] = [*self.prompt, *self.output]
        self.noise = Noise(self.seed)

    def reveal(self, token: int) -> Verdict:
        self.tokens.append(token)
        self.output.append(token)
        self.round_idx += 1
        return Verdict((), (token,), Origin.PLAIN)


def drafter_for(llm: LLM, config: SpeculativeConfig, cache_dir: Path | None) -> Drafter:
    target = replace(llm.target, cache_dir=cache_dir)
    fixed = replace(config, adaptive=False)
    speculation = build_core(target, CacheMemory(1), llm.max_model_len, fixed).speculation
    assert speculation is not None
    found = speculation.drafters.drafters.items()
    return next(drafter for name, drafter in found if name not in OWN)


def proposals_along(
    drafter: Drafter, text: KnownText, output: Sequence[int], depth: int, model: LlamaModel | None
) -> Generator[Proposal, None, None]:
    """Yield the drafter's proposal before each token of `output`, given the tokens before it and
    the hidden states of `model` that the drafter taps, if any."""
    drafter.begin(text)
    try:
        states, first = _states(drafter, model, [*text.tokens, *output]), 0
        for token in output:
            last = len(text.tokens) - 1  # the target has not run the last token yet
            if states is not None and last > first:
                rows = {layer: found[first:last] for layer, found in states.items()}
                assert isinstance(drafter, TappedDrafter)
                drafter.tapped(text, first, rows)
            first = last
            yield drafter.propose([text], [Budget(depth)])[0]
            drafter.commit(text, text.reveal(token))
    finally:
        drafter.end(text)


def _states(
    drafter: Drafter, model: LlamaModel | None, tokens: Sequence[int]
) -> dict[int, FloatArray] | None:
    """Return the hidden states of all tokens at the layers that the drafter taps, if any."""
    if not isinstance(drafter, TappedDrafter):
        return None
    assert model is not None, "nobody says what its hidden states are"
    taps = Taps(drafter.layers)
    passes = [taps.rows for _ in _passes(model, tokens, len(tokens), taps)]
    return {layer: np.concatenate([rows[layer] for rows in passes]) for layer in taps.layers}


def text_logits(model: LlamaModel, prompt: Sequence[int], text: Sequence[int]) -> FloatArray:
    """Return the model's logits before each token of `text`: [len(text), V]."""
    tokens = [*prompt, *text[:-1]]
    return np.concatenate([np.array(rows) for rows in _passes(model, tokens, len(prompt) - 1)])


def _passes(
    model: LlamaModel, tokens: Sequence[int], first_wanted: int, taps: Taps | None = None
) -> Iterator[FloatArray]:
    """Yield the logits from `first_wanted` on, by chunk; `taps` has the rows of the last chunk."""
    size = CacheSize.for_requests(1, len(tokens))
    cache = model.new_cache(size.num_pages, size.page_size)
    table = cache.new_table()
    for first in range(0, len(tokens), _PASS_TOKENS):
        chunk = tuple(tokens[first : first + _PASS_TOKENS])
        wanted = tuple(i for i in range(len(chunk)) if first + i >= first_wanted)
        span = Span(table.reserve(len(chunk)), chunk, Tree.chain(len(chunk)), wanted)
        yield model.forward(Plan.build([(span, table)]), cache, taps)
    table.free()
