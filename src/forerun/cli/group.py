"""How the command line ends: a mistake is one sentence on stderr, never a traceback."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from forerun.cli.misuse import sentence
from forerun.cli.output import CannotPrint, say
from forerun.errors import DiskFull, ForerunError
from forerun.files import NO_SPACE

MISUSE: Final = 2
DISK_FULL: Final = 74  # EX_IOERR of sysexits.h
INTERRUPTED: Final = 130
READER_LEFT: Final = 141  # as if SIGPIPE had ended us

_NO_MEMORY: Final = "there is too little memory for this; free some, or take a smaller model."
# What the loader of shared libraries, and Python's threads, say when there is none.
_SIGNS_OF_NO_MEMORY: Final = ("cannot allocate memory", "failed to map segment", "new thread")


class OneSentenceGroup(TyperGroup):
    """Commands whose mistakes, ours to explain, come out as one sentence."""

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
            code = complain(sentence(error), error.exit_code)
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
        with suppress(CannotPrint):  # what came before the mistake; told already if it cannot
            sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)


def complain(message: str, code: int) -> int:
    """One sentence on stderr; where nobody can read it, the code alone has to say it."""
    with suppress(CannotPrint):
        say(f"forerun: {' '.join(message.split())}", err=True)
    return code


def _explain_output(error: CannotPrint) -> int:
    if error.reader_left:
        return READER_LEFT
    return complain(str(error), DISK_FULL if error.is_full else MISUSE)


def _explain(error: Exception) -> int:
    """What the system refused, by its own words; anything else is a bug and stays one."""
    number = getattr(error, "errno", None)
    said = str(error).lower()
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return complain(_NO_MEMORY, MISUSE)
    if not isinstance(error, OSError) and any(sign in said for sign in _SIGNS_OF_NO_MEMORY):
        return complain(_NO_MEMORY, MISUSE)
    if not isinstance(error, OSError) or number is None:
        raise
    where = "" if error.filename is None else f" {error.filename}"
    code = DISK_FULL if number in NO_SPACE else MISUSE
    return complain(f"cannot use{where}: {error.strerror}; check the path and its rights.", code)
