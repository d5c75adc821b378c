"""`forerun models`: the downloaded models, and those that can be pulled by name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forerun.cli.terminal.output import say_json
from forerun.cli.terminal.screen import screen
from forerun.models.download.store import default_cache_dir, installed_models


def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List downloaded models, and those that `forerun pull` downloads by name."""
    rows = _rows()
    if as_json:
        say_json(rows, indent=2)
        return
    from forerun.bench.views.sheet import Sheet

    here = {True: "yes", False: "no"}
    cells = [
        [row["name"], f"{row['bytes'] / 1e6:,.0f} MB", here[bool(row["path"])], row["summary"]]
        for row in rows
    ]
    left = ["downloaded", "description"]
    screen().print(Sheet("", ["name"], [["size", *left]], cells, left))


def _rows() -> list[dict[str, Any]]:
    from forerun.models.download.sources import SOURCES

    rows: dict[str, dict[str, Any]] = {
        source.name: {"name": source.name, "path": None, "bytes": source.num_bytes}
        | {"summary": source.summary}
        for source in SOURCES.values()
    }
    for model in installed_models(default_cache_dir()):
        summary = rows.get(model.name, {}).get("summary", "")
        row = {"name": model.name, "path": str(model.path), "bytes": model.num_bytes}
        rows[model.name] = row | {"summary": summary}
    return sorted(rows.values(), key=lambda row: (row["path"] is None, row["name"]))
