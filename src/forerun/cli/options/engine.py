"""Options for the model and its speculation, made from the fields of `EngineConfig`."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forerun.cli.options.shared import filled_by, flags_of, parted, without
from forerun.cli.terminal.input import read_option
from forerun.engine_config import DEFAULT_ACTIVATIONS, EngineConfig
from forerun.errors import InvalidOption
from forerun.models.download.store import default_cache_dir
from forerun.option_fields import option

if TYPE_CHECKING:
    from forerun.engine import LLM, SpeculativeConfig

DEFAULT_MODEL = "smollm2-135m"
PANEL = "Model and speculation"
_SPECULATING: Final = ("speculative_config", "speculative_decoding", "draft_model", "spec_length")
_NOT_PASSED_ON: Final = ("max_num_seqs", "chat_template")


@dataclass(frozen=True)
class SpeculationFlags:
    """Speculation as given on the command line; `config` makes a `SpeculativeConfig` of it."""

    speculative_config: str | None = option(
        None,
        'Speculation as JSON with vLLM\'s keys, like {"method": "ngram"}. Default: '
        '{"method": "auto"}.',
    )
    speculative_decoding: bool = option(False, "Speculate with --draft-model, which implies this.")
    draft_model: str | None = option(None, "Draft model: a smaller model with the same tokenizer.")
    spec_length: int | None = option(
        None, "Maximum guesses per round (the depth). Default: the method's own."
    )
    no_speculation: bool = option(False, "Disable speculative decoding.")

    def config(self) -> SpeculativeConfig | None:
        from forerun.engine import SpeculativeConfig

        draft_model, depth = self.draft_model, self.spec_length
        has_short = self.speculative_decoding or draft_model is not None or depth is not None
        if self.no_speculation:
            if self.speculative_config is not None or has_short:
                raise InvalidOption(
                    "--no-speculation cannot be combined with other speculation options; drop one."
                )
            return None
        if self.speculative_config is not None:
            if has_short:
                raise InvalidOption(
                    "--speculative-config cannot be combined with --speculative-decoding, "
                    "--draft-model or --spec-length; drop these."
                )
            return SpeculativeConfig.from_json(self.speculative_config)
        if self.speculative_decoding and draft_model is None:
            raise InvalidOption("--speculative-decoding needs --draft-model; give one.")
        if depth is not None and depth < 1:
            raise InvalidOption(f"--spec-length {depth} is not allowed; give 1 or more.")
        return SpeculativeConfig.from_dict({"model": draft_model, "num_speculative_tokens": depth})


@filled_by(SpeculationFlags, EngineConfig, panel=PANEL)
def serving_options(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="Model: a name from `forerun models`, a GGUF file, a Hugging Face folder or a "
            "pulled hub id.",
            rich_help_panel=PANEL,
            show_envvar=False,
        ),
    ] = DEFAULT_MODEL,
    **given: Any,
) -> EngineConfig:
    """Return the config; FORERUN_CACHE sets its cache folder, FORERUN_CPU the instruction set."""
    flags, rest = parted(SpeculationFlags, given)
    if rest.get("chat_template") is not None:
        path = Path(rest["chat_template"])
        rest["chat_template"] = read_option(path, "--chat-template", "a jinja2 file")
    return EngineConfig(
        model,
        speculative_config=flags.config(),
        cache_dir=default_cache_dir(),
        instruction_set=os.environ.get("FORERUN_CPU") or None,
        **rest,
    )


# Other commands set max_num_seqs themselves, and only the server takes tools.
engine_options = without(serving_options, "max_num_seqs", "tool_call_parser")
measuring_options = without(engine_options, "reasoning_parser")  # benches do not read answers
loading_options = without(measuring_options, *_SPECULATING, "chat_template")


def load(config: EngineConfig, *, max_num_seqs: int = 1, **changes: Any) -> LLM:
    """Load the model with these options changed, and show the progress on stderr."""
    from forerun.cli.terminal.progress import loading
    from forerun.engine import LLM

    with loading(str(config.model)) as progress:
        changes |= {"max_num_seqs": max_num_seqs, "progress": progress}
        return LLM(**vars(replace(config, **changes)))


def kernel_settings(config: EngineConfig, llm: LLM | None = None) -> dict[str, str | None]:
    """Return a record's settings of the kernels: how weights are packed, the type of activations
    (CPU only), the forced instruction set and, of a loaded model, the type of its KV rows."""
    from forerun.engine.setup.kernel_choice import is_on_gpu

    activations = None if is_on_gpu(config) else config.activations or DEFAULT_ACTIVATIONS
    found = {
        "quantization": config.quantization,
        "activations": activations,
        "instruction_set": config.instruction_set,
    }
    if llm is not None:
        found["kv_cache_dtype"] = getattr(llm.model.kernels, "row_type", None)
    return found


def as_arguments(config: EngineConfig) -> list[str]:
    """Return arguments that give the same config; of speculation, only --no-speculation."""
    arguments = ["--model", str(config.model)]
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name not in _NOT_PASSED_ON and "help" in field.metadata and value is not None:
            arguments += [flags_of(field)[0], str(value)]
    return arguments if config.speculation else [*arguments, "--no-speculation"]
