"""What the parser of the command line found wrong, and what to do about it."""

from __future__ import annotations

import re
from typing import Final

import typer

_EXTRA: Final = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)")


def sentence(error: typer.TyperException) -> str:
    message = " ".join(error.format_message().split()).removesuffix(".")
    context: typer.Context | None = getattr(error, "ctx", None)
    if message.endswith("?"):
        return message
    if context is None:
        return f"{message}; see --help."
    extra = _EXTRA.fullmatch(message)
    if extra is None:
        return f"{message}; see {context.command_path} --help."
    return f"{context.command_path} has no place for {extra[1]!r}; {_remedy(context)}."


def _remedy(context: typer.Context) -> str:
    options = {name for parameter in context.command.params for name in parameter.opts}
    if "--prompt" in options:
        return "put the whole prompt in quotes"
    if "--model" in options:
        return "to name a model, use --model"
    return f"drop it, or see {context.command_path} --help"
