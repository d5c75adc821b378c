"""`forerun drafter`: trained heads, handed on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.terminal.group import OneSentenceGroup
from forerun.cli.terminal.output import say
from forerun.option_checks import require_known

_PACKED = "packed"

app = typer.Typer(cls=OneSentenceGroup, help="Trained heads for other engines.")


@app.callback()
def _root() -> None:
    """A group, though it has one command."""


@app.command()
def export(
    head: Annotated[Path, typer.Argument(help="The folder of a head.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    layout: Annotated[
        str,
        typer.Option(
            "--format",
            help="For an eagle3 head speculators (vLLM) or eagle (SGLang, SpecForge); for any, "
            "packed: ours, at 8 bits a weight.",
        ),
    ] = "speculators",
    target: Annotated[
        str, typer.Option("--target", help="What the other engine calls the target.")
    ] = "",
) -> None:
    """Write a head in the layout that another engine loads, or in half the bytes."""
    from forerun.drafters.heads.folder import HeadFolder, export_head, pack_head
    from forerun.drafters.heads.layouts import LAYOUTS

    require_known("format", (*LAYOUTS, _PACKED), layout)
    if layout == _PACKED:
        pack_head(HeadFolder(head), out)
    else:
        export_head(HeadFolder(head), out, layout, target)
    say(f"wrote {out}")
