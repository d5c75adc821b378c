"""The server's options: the fields of `ServerConfig`, repeatable ones and files."""

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
    """Options that may be given several times, and the file with more API keys."""

    served_model_name: tuple[str, ...] = option(
        (), "Model name in the API; repeatable. Default: the name of the model or its file."
    )
    api_key: tuple[str, ...] = option(
        (), "API key that clients may use; repeatable. Default: no key is needed."
    )
    api_key_file: Path | None = option(
        None, "File with more API keys, one per line; lines that start with # are ignored."
    )
    allowed_origin: tuple[str, ...] = option(
        (), "Origin of web pages that may call the server (CORS), or * for all; repeatable."
    )


@filled_by(Repeatable, ServerConfig, Limits, panel=PANEL)
def serve_options(
    config: Annotated[  # noqa: ARG001  its callback reads it, before the others
        Path | None,
        typer.Option(
            "--config",
            help="TOML file with any of these options; the environment (FORERUN_SERVE_PORT …) "
            "overrides the file, and flags override both.",
            rich_help_panel=PANEL,
            show_envvar=False,
            is_eager=True,
            callback=read_defaults,
        ),
    ] = None,
    **given: Any,
) -> ServerConfig:
    """Return the server's config; `names` is empty if none is given, for the caller to fill."""
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
    """Reject an empty variable: it would count as unset, and leave the server open to all."""
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
        raise InvalidOption(f"--api-key-file {path} contains no key; write one per line.")
    return keys
