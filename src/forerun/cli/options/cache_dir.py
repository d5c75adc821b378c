"""Where Forerun keeps what it downloads and compiles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from forerun.models.download.store import default_cache_dir, home_known


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`FORERUN_CACHE` if set, else `forerun` in the user's cache folder."""
    if chosen := environ.get("FORERUN_CACHE"):
        with home_known(chosen):
            return Path(chosen).expanduser()
    base = environ.get("XDG_CACHE_HOME")
    return Path(base) / "forerun" if base else default_cache_dir()
