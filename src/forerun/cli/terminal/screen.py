"""The console that results are printed to."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

_UNBOUNDED: Final = 10_000  # columns; wider than anything we print


def screen() -> Console:
    """Return a console as wide as the terminal or COLUMNS; pipes and files get unfolded lines."""
    from rich.console import Console

    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        width: int | None = int(columns)
    else:
        width = None if sys.stdout.isatty() else _UNBOUNDED
    return Console(highlight=False, markup=False, width=width)
