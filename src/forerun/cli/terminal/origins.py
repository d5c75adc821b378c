"""Where values came from that nobody wrote on the command line: the environment, or a file."""

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
    """A command that may be told its options elsewhere, and says where, if one is refused."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Before a file's: what the environment says wins.
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
    """`…_NO_PAGE=1` is `…_PAGE=0`, as --no-page is: only the latter is looked up without this."""
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
    """Of all options that a complaint is about."""
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
    """Whether it has the option's flag, or its name and its value: names are words like others."""
    name, flags = str(parameter.name), map(re.escape, parameter.opts)
    if re.search(rf"(?<![\w-])(?:{'|'.join(flags)})(?![\w-])", message):
        return str(parameter.opts[0]).startswith("-")  # else it is an argument
    value = context.params.get(name)
    is_named = re.search(rf"\b{name}\b", message) is not None
    return is_named and (repr(value) in message or f"{name}={value}" in message)


def origin_of(name: str, context: typer.Context) -> str | None:
    """The variable, or the file, that an option's value stands in."""
    source = context.get_parameter_source(name)
    if source is None:
        return None
    if source.name == "ENVIRONMENT" and context.auto_envvar_prefix:
        return f"{context.auto_envvar_prefix}_{name.upper()}"
    file = context.params.get("config")
    return str(file) if source.name == "DEFAULT_MAP" and file else None
