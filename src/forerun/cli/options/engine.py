"""The command line's options for the model and its speculation."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.cli.options.cache_dir import cache_dir
from forerun.cli.terminal.input import read_option
from forerun.errors import InvalidOption

if TYPE_CHECKING:
    from forerun.engine import LLM, SpeculativeConfig

DEFAULT_MODEL = "smollm2-135m"
PANEL = "Model and speculation"


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL)


@dataclass(frozen=True)
class EngineOptions:
    model: str
    speculative_config: SpeculativeConfig | None
    max_model_len: int | None
    kv_cache_memory: str | None
    kv_cache_backend: str
    chat_template: str | None
    kernels: str
    device: str
    dtype: str
    num_threads: int | None
    quantization: str | None
    activations: str | None

    @property
    def chat_template_digest(self) -> str | None:
        """For records: which template took the place of the model's own, if one did."""
        if self.chat_template is None:
            return None
        return hashlib.sha256(self.chat_template.encode()).hexdigest()[:16]

    @property
    def rounding(self) -> dict[str, str | None]:
        """For records: what was rounded beyond what the file and the machine ask for."""
        return {"quantization": self.quantization, "activations": self.activations}

    def load(self, max_num_seqs: int = 1) -> LLM:
        """Load the model; a line on stderr follows what takes long."""
        from forerun.cli.terminal.loading import loading
        from forerun.engine import LLM

        with loading(self.model) as progress:
            return LLM(
                self.model,
                speculative_config=self.speculative_config,
                max_model_len=self.max_model_len,
                max_num_seqs=max_num_seqs,
                kv_cache_memory=self.kv_cache_memory,
                kv_cache_backend=self.kv_cache_backend,
                chat_template=self.chat_template,
                kernels=self.kernels,
                device=self.device,
                dtype=self.dtype,
                num_threads=self.num_threads,
                quantization=self.quantization,
                activations=self.activations,
                instruction_set=os.environ.get("FORERUN_CPU"),
                cache_dir=cache_dir(os.environ),
                progress=progress,
            )


def engine_options(
    model: Annotated[
        str, _option("--model", "-m", text="A pulled name, a GGUF file, a Hugging Face folder.")
    ] = DEFAULT_MODEL,
    speculative_config: Annotated[
        str | None,
        _option("--speculative-config", text='JSON with vLLM\'s keys, like {"method": "ngram"}.'),
    ] = None,
    speculative_decoding: Annotated[
        bool, _option("--speculative-decoding", text="Speculate with --draft-model.")
    ] = False,
    draft_model: Annotated[
        str | None, _option("--draft-model", text="A smaller model of the same tokenizer.")
    ] = None,
    spec_length: Annotated[
        int | None, _option("--spec-length", text="Guesses per round: the depth.")
    ] = None,
    no_speculation: Annotated[bool, _option("--no-speculation", text="Plain decoding.")] = False,
    max_model_len: Annotated[
        int | None, _option("--max-model-len", text="Context to reserve; the model's by default.")
    ] = None,
    kv_cache_memory: Annotated[
        str | None,
        _option("--kv-cache-memory", text="For the caches of target and drafts, like 512MB."),
    ] = None,
    kv_cache_backend: Annotated[
        str, _option("--kv-cache-backend", text="paged, or slotted: a row for each request.")
    ] = "paged",
    chat_template: Annotated[
        Path | None, _option("--chat-template", text="A jinja2 file in place of the model's own.")
    ] = None,
    kernels: Annotated[str, _option("--kernels", text="auto, cpu, cuda or reference.")] = "auto",
    device: Annotated[str, _option("--device", text="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[
        str, _option("--dtype", text="On a GPU: bfloat16 (auto) or float32.")
    ] = "auto",
    num_threads: Annotated[
        int | None, _option("--threads", text="Cores to use; by default all that are allowed.")
    ] = None,
    quantization: Annotated[
        str | None, _option("--quantization", text="Pack float weights on load: int8 or int4.")
    ] = None,
    activations: Annotated[
        str | None, _option("--activations", text="int8: faster, less exact products.")
    ] = None,
) -> EngineOptions:
    config = _speculation(
        speculative_config, speculative_decoding, draft_model, spec_length, no_speculation
    )
    template = (
        None
        if chat_template is None
        else read_option(chat_template, "--chat-template", "a jinja2 file")
    )
    return EngineOptions(
        model,
        config,
        max_model_len,
        kv_cache_memory,
        kv_cache_backend,
        template,
        kernels,
        device,
        dtype,
        num_threads,
        quantization,
        activations,
    )


def _speculation(
    text: str | None, wanted: bool, draft_model: str | None, depth: int | None, off: bool
) -> SpeculativeConfig | None:
    from forerun.engine import SpeculativeConfig

    if off:
        if text is not None or wanted or draft_model is not None or depth is not None:
            raise InvalidOption("--no-speculation excludes the other speculation options.")
        return None
    if text is not None:
        if wanted or draft_model is not None or depth is not None:
            raise InvalidOption("--speculative-config says it all; drop the short flags.")
        return SpeculativeConfig.from_json(text)
    if wanted and draft_model is None:
        raise InvalidOption("--speculative-decoding needs --draft-model; give a model.")
    options: dict[str, Any] = {} if draft_model is None else {"model": draft_model}
    if depth is not None:
        if depth < 1:
            raise InvalidOption(f"--spec-length {depth} is not allowed; give 1 or more.")
        options["num_speculative_tokens"] = depth
    return SpeculativeConfig.from_dict(options)
