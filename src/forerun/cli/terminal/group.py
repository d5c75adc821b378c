"""How a command ends: a user's mistake is one sentence on stderr, never a traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from forerun.cli.terminal.origins import origin_of
from forerun.cli.terminal.output import CannotPrint, say
from forerun.errors import NO_MEMORY, DiskFull, ForerunError, is_lack_of_memory
from forerun.files import NO_SPACE

MISUSE: Final = 2
DISK_FULL: Final = 74  # EX_IOERR of sysexits.h
INTERRUPTED: Final = 130
READER_LEFT: Final = 141  # 128 + SIGPIPE
_EXTRA: Final = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)")


class OneSentenceGroup(TyperGroup):
    """A group of commands that reports each mistake as one sentence."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = False,  # noqa: ARG002  typer's own panels are not one sentence
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except typer.TyperException as error:
            code = complain(_sentence(error), error.exit_code)
        except CannotPrint as error:
            code = _explain_output(error)
        except DiskFull as error:
            code = complain(str(error), DISK_FULL)
        except ForerunError as error:
            code = complain(str(error), MISUSE)
        except typer.Abort:
            code = INTERRUPTED
        except (MemoryError, OSError, ImportError, RuntimeError) as error:
            code = _explain(error)
        with suppress(CannotPrint):  # output from before the mistake; a failure is reported already
            sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)


def complain(message: str, code: int) -> int:
    """Print one sentence to stderr and return `code`, also where stderr cannot be written."""
    with suppress(CannotPrint):
        say(f"forerun: {' '.join(message.split())}", err=True)
    return code


def _explain_output(error: CannotPrint) -> int:
    if error.reader_left:
        return READER_LEFT
    return complain(str(error), DISK_FULL if error.is_full else MISUSE)


def _explain(error: Exception) -> int:
    """Report an error of the system in its own words; re-raise any other, which is a bug."""
    if is_lack_of_memory(error):
        return complain(NO_MEMORY, MISUSE)
    if not isinstance(error, OSError) or error.strerror is None:
        raise
    where = "" if error.filename is None else f" {error.filename}"
    code = DISK_FULL if error.errno in NO_SPACE else MISUSE
    return complain(f"cannot use{where}: {error.strerror}; check path and permissions.", code)


def _sentence(error: typer.TyperException) -> str:
    """Say what the parser rejects, and what to do about it."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    context: typer.Context | None = getattr(error, "ctx", None)
    if message.endswith("?"):
        return message
    if context is None:
        return f"{message}; see --help."
    extra = _EXTRA.fullmatch(message)
    if extra is None:
        return f"{message}{_origin(error, context)}; see {context.command_path} --help."
    return f"unexpected argument {extra[1]!r} for {context.command_path}; {_remedy(context)}."


def _origin(error: typer.TyperException, context: typer.Context) -> str:
    parameter: typer.CallbackParam | None = getattr(error, "param", None)
    name = parameter.name if parameter else None
    origin = origin_of(name, context) if name else None
    return f" (from {origin})" if origin else ""


def _remedy(context: typer.Context) -> str:
    options = {name for parameter in context.command.params for name in parameter.opts}
    if "--prompt" in options:
        return "put the whole prompt in quotes"
    if "--model" in options:
        return "to name a model, use --model"
    return f"drop it, or see {context.command_path} --help"
