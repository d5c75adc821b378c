"""Options that several benches share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forerun.cli.options.engine import load
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from forerun.engine import LLM

ALL: Final = "all"
MOST: Final = 1_000_000  # of anything that is counted: more would never end
MOST_SEED: Final = 2**63 - 1
_LONGEST_PROMPT: Final = 2048  # tokens; other tokenizers may need more than SmolLM2's 1466


@dataclass(frozen=True)
class BenchOptions:
    classes: str
    pairs: int
    max_tokens: int
    temperature: float
    seed: int
    methods: str
    depths: str
    num_layers: int | None
    prompt_tokens: int | None

    @property
    def class_list(self) -> list[str]:
        from forerun.bench.prompts.workloads import WORKLOADS

        return list(WORKLOADS) if self.classes == ALL else split(self.classes)

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
    json: Path | None
    plot: Path | None
    html: Path | None


def strict_option() -> Any:
    return typer.Option("--strict", help="Exit with 1 if a token differs.")


def option(panel: str, *names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


def bench_options(
    classes: Annotated[
        str, option("Bench", "--classes", text="Workload classes, by comma; or all.")
    ] = ALL,
    pairs: Annotated[int, option("Bench", "--pairs", text="Interleaved prompts per class.")] = 20,
    max_tokens: Annotated[
        int, option("Bench", "--max-tokens", text="Tokens per answer at most.")
    ] = 64,
    temperature: Annotated[float, option("Bench", "--temperature", text="0 is argmax.")] = 0.0,
    seed: Annotated[int, option("Bench", "--seed", text="Of prompts, noise and order.")] = 0,
    methods: Annotated[
        str, option("Bench", "--methods", text="Methods to run at fixed depths, by comma; or none.")
    ] = "prompt_lookup,suffix",
    depths: Annotated[str, option("Bench", "--depths", text="Their depths, by comma.")] = "3,7",
    num_layers: Annotated[
        int | None, option("Bench", "--num-layers", text="For the method own_layers.")
    ] = None,
    prompt_tokens: Annotated[
        int | None, option("Bench", "--prompt-tokens", text="Cut every prompt to so many tokens.")
    ] = None,
) -> BenchOptions:
    at_least("--prompt-tokens", prompt_tokens, 1)
    at_least("--seed", seed, 0, MOST_SEED)
    at_least("--pairs", pairs, 1)
    at_least("--max-tokens", max_tokens, 2)
    if not split(classes):
        raise InvalidOption("--classes names no class; give some by comma, or all.")
    if not split(methods):
        raise InvalidOption("--methods names no method; give some by comma, or none.")
    if not split(depths):
        raise InvalidOption("--depths is empty; give some like 3,7, or use --methods none.")
    return BenchOptions(
        classes, pairs, max_tokens, temperature, seed, methods, depths, num_layers, prompt_tokens
    )


def output_options(
    json_path: Annotated[
        Path | None, option("Output", "--json", text="Write a record here.")
    ] = None,
    plot: Annotated[
        Path | None, option("Output", "--plot", text="Draw to .png, .pdf or .svg.")
    ] = None,
    html: Annotated[
        Path | None, option("Output", "--html", text="Write a report for people.")
    ] = None,
) -> OutputOptions:
    if plot is not None:
        _check_drawable(plot)
    return OutputOptions(json_path, plot, html)


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


def load_with_room(engine: EngineConfig, max_tokens: int, **changes: Any) -> LLM:
    """The model with a context that is long enough, and no longer: contenders have one each."""
    from forerun.models.opening import open_checkpoint

    trained = open_checkpoint(engine.model, engine.cache_dir).config.max_len
    wanted = engine.max_model_len or min(trained, max_len_for(max_tokens))
    return load(engine, max_model_len=wanted, **changes)
