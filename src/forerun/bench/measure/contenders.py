"""Contenders of a side-by-side run: ways to answer the same prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from forerun.bench.measure.timed_run import Clock, TimedRun, time_stream
from forerun.bench.prompts.workloads import BenchPrompt
from forerun.engine import LLM, SpeculativeConfig
from forerun.types import SamplingParams, StructuredOutputsParams

PLAIN: Final = "plain"
DEFAULT: Final = "default"


class Contender(Protocol):
    """Answers prompts; `about` goes into the record."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> Mapping[str, Any]: ...

    def answer(
        self, prompt: Sequence[int], max_tokens: int, asked: BenchPrompt | None = None
    ) -> TimedRun:
        """Answer `prompt`, the tokens of `asked`, which may give the answer a schema or tools."""
        ...


@dataclass(frozen=True)
class Engine:
    """Forerun with one kind of speculation, or with none."""

    name: str
    llm: LLM
    config: SpeculativeConfig | None
    params: SamplingParams
    clock: Clock

    @property
    def about(self) -> Mapping[str, Any]:
        config = None if self.config is None else asdict(self.config)
        left_out = self.llm.metrics()["left_out"]
        return {"engine": "forerun", "speculative_config": config} | (
            {"left_out": left_out} if left_out else {}
        )

    def answer(
        self, prompt: Sequence[int], max_tokens: int, asked: BenchPrompt | None = None
    ) -> TimedRun:
        """Answer from an empty prefix cache."""
        self.llm.reset_prefix_cache()
        params = self.params.with_(max_tokens=max_tokens)
        if asked is not None and asked.tools:
            calling = self.llm.toolbox.calling(asked.tools, "required", False)
            params = params if calling is None else calling.params(params)
        elif asked is not None and asked.json_schema is not None:
            wanted = StructuredOutputsParams(json=asked.json_schema)
            params = params.with_(structured_outputs=wanted)
        return time_stream(self.llm, prompt, params, self.clock)


def engines(
    llm: LLM, configs: Mapping[str, SpeculativeConfig | None], params: SamplingParams, clock: Clock
) -> list[Engine]:
    """Return one contender per config, all on the same weights; `plain` is the first."""
    named = {PLAIN: None, **configs}
    return [
        Engine(name, llm.with_speculation(config), config, params, clock)
        for name, config in named.items()
    ]


def fixed_depths(
    methods: Sequence[str], depths: Sequence[int], options: Mapping[str, Mapping[str, Any]]
) -> dict[str, SpeculativeConfig]:
    """Return every method at every depth; `options` has further keys of methods, like `model`."""
    return {
        f"{method}:{depth}": fixed_depth(method, depth, options.get(method, {}))
        for method in methods
        for depth in depths
    }


def fixed_depth(method: str, depth: int, options: Mapping[str, Any]) -> SpeculativeConfig:
    """Return a config in which no controller changes the depth."""
    fixed = {"num_speculative_tokens": depth, "adaptive": False}
    return SpeculativeConfig.from_dict({"method": method, **fixed, **options})


def own_options(given: SpeculativeConfig | None, num_layers: int | None) -> dict[str, Any]:
    """Return the options that are given for single methods."""
    found = {} if given is None else {name: given.own_options(name) for name in given.parts}
    return found if num_layers is None else found | {"own_layers": {"num_layers": num_layers}}
