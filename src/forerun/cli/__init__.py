"""The command `forerun`: one file per command, registered here.

Nothing heavy is imported before a command runs, so that help appears at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from forerun.cli import (
    alpha,
    bench,
    chat,
    demo,
    doctor,
    gate,
    generate,
    models,
    plan,
    proof,
    pull,
    serve,
)
from forerun.cli.heads import drafter, train
from forerun.cli.terminal.group import MISUSE, OneSentenceGroup, complain
from forerun.cli.terminal.origins import TellsOrigins
from forerun.cli.terminal.output import open_output, say
from forerun.version import VERSION

app = typer.Typer(
    name="forerun",
    cls=OneSentenceGroup,
    help="Run language models faster, with speculative decoding and the same output.",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(generate.generate)
app.command()(chat.chat)
app.command(cls=TellsOrigins, context_settings={"auto_envvar_prefix": "FORERUN_SERVE"})(serve.serve)
app.command()(demo.demo)
app.command()(pull.pull)
app.command()(models.models)
app.add_typer(bench.app, name="bench")
app.command()(train.train)
app.add_typer(drafter.app, name="drafter")
app.command()(alpha.alpha)
app.command()(gate.gate)
app.command()(proof.proof)
app.command()(plan.plan)
app.command()(doctor.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"forerun {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        say(context.get_help())


def main() -> None:
    if not open_output():
        sys.exit(complain("standard output is closed; redirect it to a file or a pipe.", MISUSE))
    app(prog_name="forerun")
