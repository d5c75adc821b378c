"""A request whose text is known already, so that a drafter can be asked at every prefix."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from forerun.drafters import Budget, Drafter
from forerun.engine import LLM, SpeculativeConfig
from forerun.engine.building import Target, build_core
from forerun.engine.memory import CacheMemory
from forerun.sampling import Noise
from forerun.types import Origin, Proposal, SamplingParams, Verdict


@dataclass
class KnownText:
    """What a drafter sees of a request whose output is revealed token by token."""

    id: int
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    output: list[int] = field(default_factory=list)
    round_idx: int = 0
    cache_salt: str | None = None
    prediction: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.tokens: list[int] = [*self.prompt, *self.output]
        self.noise = Noise(self.seed)

    def reveal(self, token: int) -> Verdict:
        self.tokens.append(token)
        self.output.append(token)
        self.round_idx += 1
        return Verdict((), (token,), Origin.PLAIN)


def drafter_for(llm: LLM, config: SpeculativeConfig, cache_dir: Path | None) -> Drafter:
    target = Target(llm.model, llm.tokenizer, llm.max_model_len, CacheMemory(1), cache_dir)
    speculation = build_core(target, replace(config, adaptive=False)).speculation
    assert speculation is not None
    return next(iter(speculation.drafters.drafters.values()))


def proposals_along(
    drafter: Drafter, text: KnownText, output: Sequence[int], depth: int
) -> Generator[Proposal, None, None]:
    """What the drafter says before each token of `output`, given all tokens before it."""
    drafter.begin(text)
    try:
        for token in output:
            yield drafter.propose([text], [Budget(depth)])[0]
            drafter.commit(text, text.reveal(token))
    finally:
        drafter.end(text)
