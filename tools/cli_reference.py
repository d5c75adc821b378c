"""Write docs/cli-reference.md from the help of the commands: python tools/cli_reference.py

A test compares the committed page with this tool's output, so that the page stays up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer.main

from forerun.cli import app

PAGE: Final = Path(__file__).parents[1] / "docs" / "cli-reference.md"
_HEAD: Final = """# Command-line reference

Printed from the code by `python tools/cli_reference.py`; [the command line](cli.md) explains it.
"""


def reference() -> str:
    root = typer.main.get_command(app)
    return _HEAD + "".join(f"\n{section}" for section in _sections("forerun", root))


def _sections(path: str, command: Any) -> Iterator[str]:
    if path != "forerun":
        yield _section(path, command)
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _sections(f"{path} {name}", child)


def _section(path: str, command: Any) -> str:
    lines = [f"## {path}", "", _one_line(command.help), ""]
    rows = [_row(p) for p in command.params if not getattr(p, "hidden", False)]
    if rows:
        lines += ["| option | meaning | default |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    options = [*parameter.opts, *parameter.secondary_opts]
    names = [parameter.name.upper()] if is_argument else options
    spelled = ", ".join(f"`{name}`" for name in names)
    value = parameter.default
    is_shown = value is not None and value is not False and not callable(value)
    default = f"`{_plain(value)}`" if is_shown else ""
    return f"| {spelled} | {_cell(parameter.help)} | {default} |"


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str | None) -> str:
    return _one_line(text).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(PAGE.parents[1])}")
