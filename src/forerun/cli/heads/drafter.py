"""`forerun drafter`: export trained heads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.terminal.group import OneSentenceGroup
from forerun.cli.terminal.output import say
from forerun.option_checks import require_known

_PACKED = "packed"

app = typer.Typer(cls=OneSentenceGroup, help="Export trained heads.")


@app.callback()
def _root() -> None:
    """Make `drafter` a group, although it has one command."""


@app.command()
def export(
    head: Annotated[Path, typer.Argument(help="Folder of a trained head.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")],
    layout: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format: for eagle3 heads speculators (vLLM) or eagle (SGLang, SpecForge); for "
            "any head packed (Forerun's own, 8 bits per weight).",
        ),
    ] = "speculators",
    target: Annotated[
        str, typer.Option("--target", help="Name of the target model in the other engine.")
    ] = "",
) -> None:
    """Write a head in the format of another engine, or packed into half the bytes."""
    from forerun.drafters.heads.folder import HeadFolder, export_head, pack_head
    from forerun.drafters.heads.layouts import LAYOUTS

    require_known("format", (*LAYOUTS, _PACKED), layout)
    if layout == _PACKED:
        pack_head(HeadFolder(head), out)
    else:
        export_head(HeadFolder(head), out, layout, target)
    say(f"wrote {out}")
