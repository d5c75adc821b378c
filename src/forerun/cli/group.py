"""How the command line fails: one sentence on stderr and exit code 2, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from forerun.cli.misuse import sentence
from forerun.errors import ForerunError

MISUSE: Final = 2
INTERRUPTED: Final = 130


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
        except typer.TyperException as error:
            code = _complain(sentence(error), error.exit_code)
        except ForerunError as error:
            code = _complain(str(error), MISUSE)
        except typer.Abort:
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    sentence = " ".join(message.split())
    typer.echo(f"forerun: {sentence}", err=True)
    return code
