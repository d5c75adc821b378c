"""The time to first token of `forerun generate` on a GPU, in fresh processes."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from forerun.bench.measure.startup import start_once


def measure_starts(arguments: Sequence[str]) -> dict[str, Any]:
    """Time a `cold` start, with no kernel compiled, and then a `warm` one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"TRITON_CACHE_DIR": folder}
        cold, warm = (
            start_once(sys.executable, arguments, time.perf_counter, environment) for _ in range(2)
        )
    return {"arguments": list(arguments), "cold": asdict(cold), "warm": asdict(warm)}
