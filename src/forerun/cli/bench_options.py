"""The options of `forerun bench`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forerun.cli.cache_dir import cache_dir
from forerun.cli.engine_options import EngineOptions
from forerun.errors import InvalidOption, MissingExtra, unknown_name

if TYPE_CHECKING:
    from forerun.bench.peers import Peer
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
    def depth_list(self) -> list[int]:
        return whole_numbers(
            "--depths", self.depths, otherwise="; to sweep nothing, use --methods none"
        )

    @property
    def method_list(self) -> list[str]:
        return [] if self.methods == "none" else split(self.methods)


@dataclass(frozen=True)
class PeerOptions:
    peers: str
    peer_modes: str
    peer_python: Path | None


@dataclass(frozen=True)
class OutputOptions:
    json: Path | None
    plot: Path | None
    html: Path | None


def _option(panel: str, *names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


def bench_options(
    classes: Annotated[
        str, _option("Bench", "--classes", text="Workload classes, by comma; or all.")
    ] = ALL,
    pairs: Annotated[int, _option("Bench", "--pairs", text="Interleaved prompts per class.")] = 20,
    max_tokens: Annotated[
        int, _option("Bench", "--max-tokens", text="Tokens per answer at most.")
    ] = 64,
    temperature: Annotated[float, _option("Bench", "--temperature", text="0 is argmax.")] = 0.0,
    seed: Annotated[int, _option("Bench", "--seed", text="Of prompts, noise and order.")] = 0,
    methods: Annotated[
        str, _option("Bench", "--methods", text="Methods to sweep, by comma; or none.")
    ] = "prompt_lookup,suffix",
    depths: Annotated[
        str, _option("Bench", "--depths", text="Fixed depths to sweep, by comma.")
    ] = "3,7",
    num_layers: Annotated[
        int | None, _option("Bench", "--num-layers", text="For the method own_layers.")
    ] = None,
    prompt_tokens: Annotated[
        int | None, _option("Bench", "--prompt-tokens", text="Cut every prompt to so many tokens.")
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


def peer_options(
    peers: Annotated[
        str, _option("Peers", "--peers", text="transformers, llamacpp, or both by comma.")
    ] = "",
    peer_modes: Annotated[
        str, _option("Peers", "--peer-modes", text="Their modes, by comma; or all.")
    ] = ALL,
    peer_python: Annotated[
        Path | None,
        _option("Peers", "--peer-python", text="A Python that has them; this one by default."),
    ] = None,
) -> PeerOptions:
    if not split(peers) and (peers or peer_modes != ALL or peer_python is not None):
        raise InvalidOption("--peers names nobody; give transformers, llamacpp, or both by comma.")
    return PeerOptions(peers, peer_modes, peer_python)


def peer_modes(peers: list[Peer], wanted: str) -> list[tuple[Peer, str]]:
    """Each peer with each of its modes that is wanted."""
    known = [(peer, mode) for peer in peers for mode in peer.modes]
    if wanted == ALL:
        return known
    names = split(wanted)
    for name in names:
        if name not in (mode for _, mode in known):
            raise unknown_name("peer mode", name, (mode for _, mode in known))
    for peer in peers:
        if not set(peer.modes) & set(names):
            valid = ", ".join(peer.modes)
            raise InvalidOption(f"--peer-modes names none of {peer.name}'s: {valid}.")
    return [(peer, mode) for peer, mode in known if mode in names]


def output_options(
    json_path: Annotated[
        Path | None, _option("Output", "--json", text="Write the record here, pair by pair.")
    ] = None,
    plot: Annotated[
        Path | None, _option("Output", "--plot", text="Draw to .png, .pdf or .svg.")
    ] = None,
    html: Annotated[
        Path | None, _option("Output", "--html", text="Write a report for people.")
    ] = None,
) -> OutputOptions:
    if plot is not None:
        _check_drawable(plot)
    return OutputOptions(json_path, plot, html)


def _check_drawable(path: Path) -> None:
    """Told before anything is measured, not after."""
    from forerun.planning.canvas import FORMATS

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
