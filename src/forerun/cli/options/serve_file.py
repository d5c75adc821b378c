"""The TOML file of `forerun serve --config`: defaults for its options."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import typer

from forerun.cli.terminal.input import read_option
from forerun.errors import InvalidOption, unknown_name


def read_defaults(context: typer.Context, path: Path | None) -> Path | None:
    """Read the file before other options are parsed; the environment and flags override it."""
    if path is None:
        return None
    try:
        found = tomllib.loads(read_option(path, "--config", "a TOML file"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidOption(f"--config {path} is not TOML: {error}.") from None
    context.default_map = {**_options(context, found, path), **(context.default_map or {})}
    return path


def _options(context: typer.Context, found: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the values by parameter name; keys are option names (max-num-seqs, max_num_seqs)."""
    known, negated = dict[str, str | None](), dict[str, str | None]()
    lists = {p.name for p in context.command.params if getattr(p, "multiple", False)}
    for parameter in context.command.params:
        names = (*parameter.opts, parameter.name or "")
        known |= dict.fromkeys(map(_key, names), parameter.name)
        negated |= dict.fromkeys(map(_key, parameter.secondary_opts), parameter.name)
    defaults: dict[str, Any] = {}
    for key, value in found.items():
        name = known.get(_key(key)) or negated.get(_key(key))
        if name is None:
            raise unknown_name(f"option in {path}", key, [*known, *negated])
        if isinstance(value, dict):
            raise InvalidOption(f"{key} in {path} is a table; options are single values or lists.")
        if name in lists and not isinstance(value, list):
            raise InvalidOption(f"{key} in {path} is not a list; write a list, even for one value.")
        if _key(key) in negated and not isinstance(value, bool):
            raise InvalidOption(f"{key} in {path} is {value!r}; write true or false.")
        defaults[name] = not value if _key(key) in negated else value
    return defaults


def _key(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
