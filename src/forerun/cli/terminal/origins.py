"""Where values came from that nobody wrote on the command line: the environment, or a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand

from forerun.errors import ForerunError


class TellsOrigins(TyperCommand):
    """A command that may be told its options elsewhere, and says where, if one is refused."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _telling_origins(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _telling_origins(ctx):
            return super().invoke(ctx)


@contextmanager
def _telling_origins(context: typer.Context) -> Iterator[None]:
    """Of all options that a complaint names."""
    try:
        yield
    except ForerunError as error:
        message = str(error)
        words = {word.strip("_") for word in re.findall(r"\w+", message.replace("-", "_"))}
        names = [parameter.name for parameter in context.command.params if parameter.name in words]
        origins = {name: origin_of(name, context) for name in names if name}
        told = [f"{name} is from {origin}" for name, origin in origins.items() if origin]
        if told:
            error.args = (f"{message.removesuffix('.')} ({', '.join(told)}).",)
        raise


def origin_of(name: str, context: typer.Context) -> str | None:
    """The variable, or the file, that an option's value stands in."""
    source = context.get_parameter_source(name)
    if source is None:
        return None
    if source.name == "ENVIRONMENT" and context.auto_envvar_prefix:
        return f"{context.auto_envvar_prefix}_{name.upper()}"
    file = context.params.get("config")
    return str(file) if source.name == "DEFAULT_MAP" and file else None
