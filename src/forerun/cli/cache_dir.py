"""Where Forerun keeps what it downloads and compiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_dir(environ: Mapping[str, str]) -> Path:
    """`FORERUN_CACHE` if set, else `forerun` in the user's cache folder."""
    if chosen := environ.get("FORERUN_CACHE"):
        return Path(chosen).expanduser()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "forerun"
