"""The options of `forerun serve` beside the model's: those of `ServerConfig`, and its files."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from forerun.cli.options.serve_file import read_defaults
from forerun.cli.options.shared import filled_by
from forerun.cli.terminal.input import read_option
from forerun.errors import InvalidOption
from forerun.server.operation.config import Limits, ServerConfig

PANEL = "Server"


def _option(*names: str, text: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL, **more)


@filled_by(ServerConfig, Limits, panel=PANEL)
def serve_options(
    config: Annotated[  # noqa: ARG001  read before the others, by its callback
        Path | None,
        _option(
            "--config",
            text="A TOML file with any of these options; flags win over the environment "
            "(FORERUN_SERVE_PORT …), and that over the file.",
            is_eager=True,
            callback=read_defaults,
        ),
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        _option("--served-model-name", text="What clients call the model; repeatable."),
    ] = None,
    api_key: Annotated[
        list[str] | None, _option("--api-key", text="Who has it may ask; repeatable.")
    ] = None,
    api_key_file: Annotated[
        Path | None, _option("--api-key-file", text="More of them, one a line.")
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        _option("--allowed-origin", text="A web page that may ask (CORS); repeatable."),
    ] = None,
    **rest: Any,
) -> ServerConfig:
    """Without a name given, `names` is empty: the model's own is to be put there."""
    limits = {field.name: rest.pop(field.name) for field in fields(Limits)}
    return ServerConfig(
        tuple(served_model_name or ()),
        api_keys=(*(api_key or ()), *_keys_in(api_key_file)),
        allowed_origins=tuple(allowed_origin or ()),
        limits=Limits(**limits),
        **rest,
    )


def _keys_in(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    lines = read_option(path, "--api-key-file", "a text file").splitlines()
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise InvalidOption(f"--api-key-file {path} holds no key; write one a line.")
    return keys
