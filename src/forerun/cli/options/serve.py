"""The options of `forerun serve` beside the model's: those of `ServerConfig`, and its files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from forerun.cli.options.serve_file import read_defaults
from forerun.cli.options.shared import filled_by, parted
from forerun.cli.terminal.input import read_option
from forerun.errors import InvalidOption
from forerun.option_fields import option
from forerun.server.operation.config import Limits, ServerConfig

PANEL = "Server"


@dataclass(frozen=True)
class Repeatable:
    """What may be given several times, and a file with more."""

    served_model_name: tuple[str, ...] = option((), "What clients call the model; repeatable.")
    api_key: tuple[str, ...] = option((), "Who has it may ask; repeatable.")
    api_key_file: Path | None = option(None, "More of them, one a line; # at its start: a comment.")
    allowed_origin: tuple[str, ...] = option((), "A web page that may ask (CORS); repeatable.")


@filled_by(Repeatable, ServerConfig, Limits, panel=PANEL)
def serve_options(
    config: Annotated[  # noqa: ARG001  read before the others, by its callback
        Path | None,
        typer.Option(
            "--config",
            help="A TOML file with any of these options; flags win over the environment "
            "(FORERUN_SERVE_PORT …), and that over the file.",
            rich_help_panel=PANEL,
            show_envvar=False,
            is_eager=True,
            callback=read_defaults,
        ),
    ] = None,
    **given: Any,
) -> ServerConfig:
    """Without a name given, `names` is empty: the model's own is to be put there."""
    _refuse_empty_keys()
    lists, given = parted(Repeatable, given)
    limits, given = parted(Limits, given)
    return ServerConfig(
        tuple(lists.served_model_name or ()),
        api_keys=(*(lists.api_key or ()), *_keys_in(lists.api_key_file)),
        allowed_origins=tuple(lists.allowed_origin or ()),
        limits=limits,
        **given,
    )


def _refuse_empty_keys() -> None:
    """An empty variable counts as none, and whoever sets this one does not want an open server."""
    for name in ("FORERUN_SERVE_API_KEY", "FORERUN_SERVE_API_KEY_FILE"):
        if not os.environ.get(name, "some").strip():
            raise InvalidOption(f"{name} is empty; give it a value, or unset it.")


def _keys_in(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    text = read_option(path, "--api-key-file", "a text file")
    lines = text.removeprefix("\N{BYTE ORDER MARK}").splitlines()
    keys = tuple(key for line in lines if (key := line.strip()) and not key.startswith("#"))
    if not keys:
        raise InvalidOption(f"--api-key-file {path} holds no key; write one a line.")
    return keys
