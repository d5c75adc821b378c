"""Drawing figures into files, all in one style ([plot] extra)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from forerun.errors import InvalidOption, MissingExtra
from forerun.files import write_whole

FORMATS: Final = (".png", ".pdf", ".svg")

# Dark to bright: they differ in lightness as well as hue, so that they survive grey print.
SHADES: Final = ("#1b2a41", "#2a6f97", "#2a9d8f", "#e09f3e", "#c8553d")
INK: Final = "#2b2b2b"
STYLE: Final[Mapping[Any, Any]] = {
    "font.size": 10.5,
    "axes.edgecolor": "#8a8a8a",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 12,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 2,
    "svg.fonttype": "none",
}


def check_drawable(path: Path) -> None:
    """Raise if `canvas` could not draw to `path`: a wrong suffix, or no matplotlib."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidOption(f"cannot draw to {path.name!r}; end it in {', '.join(FORMATS)}.")
    if find_spec("matplotlib") is None:
        raise MissingExtra("drawing figures", "plot")


@contextmanager
def canvas(path: Path, width: float, height: float, **padding: Any) -> Iterator[Any]:
    """Yield a figure to draw on, and save it to `path` (.png, .pdf or .svg); sizes in inches."""
    check_drawable(path)
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(dict(STYLE)):
        figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(**padding))
        FigureCanvasAgg(figure)
        yield figure
        _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=160, format=path.suffix[1:].lower())
    write_whole(path, drawn.getvalue())
