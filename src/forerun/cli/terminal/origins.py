"""Option values that come from the environment or a file, and errors that say so."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer
from typer.core import TyperCommand

from forerun.errors import ForerunError, InvalidOption

_YES: Final = ("1", "true", "t", "yes", "y", "on")
_NO: Final = ("0", "false", "f", "no", "n", "off")


class TellsOrigins(TyperCommand):
    """A command whose options may come from elsewhere; an error about one says from where."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Set before --config is read, so that the environment overrides the file.
        ctx.default_map = {
            **(ctx.default_map or {}),
            **_said_no(self.params, ctx.auto_envvar_prefix),
        }
        with _telling_origins(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _telling_origins(ctx):
            return super().invoke(ctx)


def _said_no(parameters: Sequence[Any], prefix: str) -> dict[str, bool]:
    """Read `…_NO_PAGE=1` as `…_PAGE=0`, like --no-page: click looks up only the latter name."""
    found = {}
    for one in parameters:
        for flag in one.secondary_opts:
            variable = f"{prefix}_{flag.lstrip('-').replace('-', '_').upper()}"
            said = os.environ.get(variable, "").strip().lower()
            if said and said not in _YES + _NO:
                raise InvalidOption(f"{variable} is {said!r}; write 1 or 0.")
            if said:
                found[str(one.name)] = said in _NO
    return found


@contextmanager
def _telling_origins(context: typer.Context) -> Iterator[None]:
    """Add to an error the source of each option that it is about."""
    try:
        yield
    except ForerunError as error:
        message, parameters = str(error), context.command.params
        named = [one.name for one in parameters if one.name and _is_about(message, one, context)]
        origins = {name: origin_of(name, context) for name in named}
        told = [f"{name} is from {origin}" for name, origin in origins.items() if origin]
        if told:
            message = f"{message.removesuffix('.')} ({', '.join(told)})."
            error.args = (message,)
            if isinstance(error, ImportError):
                error.msg = message
        raise


def _is_about(message: str, parameter: Any, context: typer.Context) -> bool:
    """Whether it has the option's flag, or its name and value: a name alone may be a plain word."""
    name, flags = str(parameter.name), map(re.escape, parameter.opts)
    if re.search(rf"(?<![\w-])(?:{'|'.join(flags)})(?![\w-])", message):
        return str(parameter.opts[0]).startswith("-")  # else it is an argument
    value = context.params.get(name)
    is_named = re.search(rf"\b{name}\b", message) is not None
    return is_named and (repr(value) in message or f"{name}={value}" in message)


def origin_of(name: str, context: typer.Context) -> str | None:
    """Return the variable or the file that gave an option its value; None for other sources."""
    source = context.get_parameter_source(name)
    if source is None:
        return None
    if source.name == "ENVIRONMENT" and context.auto_envvar_prefix:
        return f"{context.auto_envvar_prefix}_{name.upper()}"
    file = context.params.get("config")
    return str(file) if source.name == "DEFAULT_MAP" and file else None
