"""Options that several benches share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forerun.cli.options.cache_dir import cache_dir
from forerun.cli.options.engine import EngineOptions
from forerun.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from forerun.engine import LLM

ALL: Final = "all"
MOST: Final = 1_000_000  # of anything that is counted: more would never end
MOST_SEED: Final = 2**63 - 1
# What a model is loaded with, by the names of the parameters of `engine_options`.
LOADING: Final = (
    *("model", "no_speculation", "max_model_len", "kv_cache_memory", "kv_cache_backend"),
    *("kernels", "device", "dtype", "num_threads", "quantization", "activations"),
)
_LONGEST_PROMPT: Final = 2048  # tokens; other tokenizers may need more than SmolLM2's 1466


def panel(title: str) -> Callable[[str, str], Any]:
    """Options that help shows together, each by its name and a text."""
    return lambda name, text: typer.Option(name, help=text, rich_help_panel=title)


_bench, _output = panel("Bench"), panel("Output")


def strict_option() -> Any:
    return typer.Option("--strict", help="Exit with 1 if a token differs.")


@dataclass(frozen=True)
class BenchOptions:
    classes: Annotated[str, _bench("--classes", "Workload classes, by comma; or all.")] = ALL
    pairs: Annotated[int, _bench("--pairs", "Interleaved prompts per class.")] = 20
    max_tokens: Annotated[int, _bench("--max-tokens", "Tokens per answer at most.")] = 64
    temperature: Annotated[float, _bench("--temperature", "0 is argmax.")] = 0.0
    seed: Annotated[int, _bench("--seed", "Of prompts, noise and order.")] = 0
    methods: Annotated[
        str, _bench("--methods", "Methods to run at fixed depths, by comma; or none.")
    ] = "prompt_lookup,suffix"
    depths: Annotated[str, _bench("--depths", "Their depths, by comma.")] = "3,7"
    num_layers: Annotated[int | None, _bench("--num-layers", "For the method own_layers.")] = None
    prompt_tokens: Annotated[
        int | None, _bench("--prompt-tokens", "Cut every prompt to so many tokens.")
    ] = None

    def __post_init__(self) -> None:
        at_least("--prompt-tokens", self.prompt_tokens, 1)
        at_least("--seed", self.seed, 0, MOST_SEED)
        at_least("--pairs", self.pairs, 1)
        at_least("--max-tokens", self.max_tokens, 2)
        if not split(self.classes):
            raise InvalidOption("--classes names no class; give some by comma, or all.")
        if not split(self.methods):
            raise InvalidOption("--methods names no method; give some by comma, or none.")
        if not split(self.depths):
            raise InvalidOption("--depths is empty; give some like 3,7, or use --methods none.")

    @property
    def class_list(self) -> list[str]:
        from forerun.bench.prompts.workloads import WORKLOADS

        return list(WORKLOADS) if self.classes == ALL else split(self.classes)

    @property
    def depth_list(self) -> list[int]:
        otherwise = "; to run no method at a fixed depth, use --methods none"
        return whole_numbers("--depths", self.depths, otherwise)

    @property
    def method_list(self) -> list[str]:
        return [] if self.methods == "none" else split(self.methods)


@dataclass(frozen=True)
class OutputOptions:
    json: Annotated[Path | None, _output("--json", "Write a record here.")] = None
    plot: Annotated[Path | None, _output("--plot", "Draw to .png, .pdf or .svg.")] = None
    html: Annotated[Path | None, _output("--html", "Write a report for people.")] = None

    def __post_init__(self) -> None:
        if self.plot is not None:
            _check_drawable(self.plot)


def _check_drawable(path: Path) -> None:
    """Told before anything is measured, not after."""
    from forerun.theory.canvas import FORMATS

    if path.suffix.lower() not in FORMATS:
        raise InvalidOption(f"cannot draw to {path.name!r}; end it in {', '.join(FORMATS)}.")
    if find_spec("matplotlib") is None:
        raise MissingExtra("drawing figures", "plot")


def at_least(option: str, value: int | None, least: int, most: int = MOST) -> None:
    if value is not None and value < least:
        raise InvalidOption(f"{option} {value} is not allowed; give {least} or more.")
    if value is not None and value > most:
        raise InvalidOption(f"{option} {value} is not allowed; give {most} or less.")


def whole_numbers(option: str, text: str, otherwise: str = "") -> list[int]:
    """Numbers by comma, each from 1 to 999,999; `otherwise` is what else to do."""
    for part in split(text):
        if not re.fullmatch(r"0*[1-9][0-9]{0,5}", part):
            raise InvalidOption(
                f"{option} holds {part[:40]!r}; give whole numbers from 1 on, by comma{otherwise}."
            )
    return [int(part) for part in split(text)]


def split(text: str) -> list[str]:
    """Names by comma."""
    return [part.strip() for part in text.split(",") if part.strip()]


def max_len_for(max_tokens: int) -> int:
    """A context that holds our longest prompt and an answer."""
    return _LONGEST_PROMPT + max_tokens


def load_with_room(engine: EngineOptions, max_tokens: int) -> LLM:
    """The model with a context that is long enough, and no longer: contenders have one each."""
    from forerun.models.opening import open_checkpoint

    trained = open_checkpoint(engine.model, cache_dir(os.environ)).config.max_len
    wanted = engine.max_model_len or min(trained, max_len_for(max_tokens))
    return replace(engine, max_model_len=wanted).load()
