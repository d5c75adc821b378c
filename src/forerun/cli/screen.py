"""Where results are printed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

_UNBOUNDED: Final = 10_000  # columns; wider than anything we print


def screen() -> Console:
    """As wide as the terminal, or as COLUMNS says; a pipe or a file has no edge to fold at."""
    from rich.console import Console

    is_bounded = Console().is_terminal or "COLUMNS" in os.environ
    width = None if is_bounded else _UNBOUNDED
    return Console(highlight=False, markup=False, width=width)
