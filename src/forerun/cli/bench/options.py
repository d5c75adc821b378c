"""Options that several benches share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from forerun.cli.options.engine import load
from forerun.cli.options.shared import bundle
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption
from forerun.option_fields import option

if TYPE_CHECKING:
    from forerun.engine import LLM

ALL: Final = "all"
MOST: Final = 1_000_000  # largest count of anything: more would never end
MOST_SEED: Final = 2**63 - 1
_LONGEST_PROMPT: Final = 2048  # tokens; other tokenizers may need more than SmolLM2's 1466


@dataclass(frozen=True)
class BenchOptions:
    classes: str = option(
        ALL, "Workload classes, separated by commas; or all (json and tools only if named)."
    )
    pairs: int = option(20, "Prompts per class; contenders take turns on each.")
    max_tokens: int = option(64, "Maximum tokens per answer.")
    temperature: float = option(0.0, "Sampling temperature; 0 is greedy.")
    seed: int = option(0, "Seed of prompts, sampling and order.")
    methods: str = option(
        "prompt_lookup,suffix", "Methods to run at fixed depths, separated by commas; or none."
    )
    depths: str = option("3,7", "Depths of --methods, separated by commas.")
    num_layers: int | None = option(None, "Layers of the target in own_layers.")
    prompt_tokens: int | None = option(None, "Cut every prompt to this many tokens.")

    def __post_init__(self) -> None:
        at_least("--prompt-tokens", self.prompt_tokens, 1)
        at_least("--seed", self.seed, 0, MOST_SEED)
        at_least("--pairs", self.pairs, 1)
        at_least("--max-tokens", self.max_tokens, 2)
        if not split(self.classes):
            raise InvalidOption("--classes names no class; give some, separated by commas, or all.")
        if not split(self.methods):
            raise InvalidOption(
                "--methods names no method; give some, separated by commas, or none."
            )
        if not split(self.depths):
            raise InvalidOption("--depths is empty; give some like 3,7, or use --methods none.")

    @property
    def class_list(self) -> list[str]:
        from forerun.bench.prompts.workloads import FREE_FORM

        return list(FREE_FORM) if self.classes == ALL else split(self.classes)

    @property
    def depth_list(self) -> list[int]:
        return whole_numbers(
            "--depths",
            self.depths,
            otherwise="; to run no method at a fixed depth, use --methods none",
        )

    @property
    def method_list(self) -> list[str]:
        return [] if self.methods == "none" else split(self.methods)


@dataclass(frozen=True)
class OutputOptions:
    json: Path | None = option(None, "Write the record to this JSON file.")
    plot: Path | None = option(None, "Draw a figure to a .png, .pdf or .svg.")
    html: Path | None = option(None, "Write an HTML report to this file.")

    def __post_init__(self) -> None:
        """Reject a figure that cannot be drawn before anything is measured."""
        from forerun.theory.canvas import check_drawable

        if self.plot is not None:
            check_drawable(self.plot)


bench_options = bundle(BenchOptions, "Bench")
output_options = bundle(OutputOptions, "Output")


def strict_option() -> Any:
    return typer.Option("--strict", help="Exit with 1 if a token differs.")


def at_least(option: str, value: int | None, least: int, most: int = MOST) -> None:
    if value is not None and value < least:
        raise InvalidOption(f"{option} {value} is not allowed; give {least} or more.")
    if value is not None and value > most:
        raise InvalidOption(f"{option} {value} is not allowed; give {most} or less.")


def whole_numbers(option: str, text: str, otherwise: str = "") -> list[int]:
    """Parse numbers from 1 to 999,999; `otherwise` is another remedy for the error."""
    for part in split(text):
        if not re.fullmatch(r"0*[1-9][0-9]{0,5}", part):
            raise InvalidOption(
                f"{option} holds {part[:40]!r}; give whole numbers from 1 on, separated by "
                f"commas{otherwise}."
            )
    return [int(part) for part in split(text)]


def split(text: str) -> list[str]:
    """Split at commas; drop spaces and empty parts."""
    return [part.strip() for part in text.split(",") if part.strip()]


def max_len_for(max_tokens: int) -> int:
    """Return a context length for the longest prompt and an answer."""
    return _LONGEST_PROMPT + max_tokens


def load_with_room(engine: EngineConfig, max_tokens: int, **changes: Any) -> LLM:
    """Load the model with a context no longer than needed, since each contender has one."""
    from forerun.models.opening import open_checkpoint

    trained = open_checkpoint(engine.model, engine.cache_folder).config.max_len
    wanted = engine.max_model_len or min(trained, max_len_for(max_tokens))
    return load(engine, max_model_len=wanted, **changes)
