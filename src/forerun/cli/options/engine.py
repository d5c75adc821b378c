"""The command line's options for the model and its speculation: those of `EngineConfig`."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forerun.cli.options.cache_dir import cache_dir
from forerun.cli.options.shared import filled_by, flags_of, without
from forerun.cli.terminal.input import read_option
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption

if TYPE_CHECKING:
    from forerun.engine import LLM, SpeculativeConfig

DEFAULT_MODEL = "smollm2-135m"
PANEL = "Model and speculation"
_SPECULATING: Final = ("speculative_config", "speculative_decoding", "draft_model", "spec_length")
_NOT_PASSED_ON: Final = ("max_num_seqs", "chat_template")


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL)


@filled_by(EngineConfig, panel=PANEL)
def serving_options(
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
    **rest: Any,
) -> EngineConfig:
    """What the environment says, too: FORERUN_CACHE and FORERUN_CPU."""
    if rest.get("chat_template") is not None:
        path = Path(rest["chat_template"])
        rest["chat_template"] = read_option(path, "--chat-template", "a jinja2 file")
    return EngineConfig(
        model,
        speculative_config=_speculation(
            speculative_config, speculative_decoding, draft_model, spec_length, no_speculation
        ),
        cache_dir=cache_dir(),
        instruction_set=os.environ.get("FORERUN_CPU"),
        **rest,
    )


engine_options = without(serving_options, "max_num_seqs")  # each command knows how many it asks
loading_options = without(engine_options, *_SPECULATING, "chat_template")


def load(config: EngineConfig, *, max_num_seqs: int = 1, **changes: Any) -> LLM:
    """The model, with these options changed; a line on stderr follows what takes long."""
    from forerun.cli.terminal.loading import loading
    from forerun.engine import LLM

    with loading(str(config.model)) as progress:
        changes |= {"max_num_seqs": max_num_seqs, "progress": progress}
        return LLM(**vars(replace(config, **changes)))


def as_arguments(config: EngineConfig) -> list[str]:
    """What asks for the same on a command line, but for speculation's own options."""
    arguments = ["--model", str(config.model)]
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name not in _NOT_PASSED_ON and "help" in field.metadata and value is not None:
            arguments += [flags_of(field)[0], str(value)]
    return arguments if config.speculation else [*arguments, "--no-speculation"]


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
