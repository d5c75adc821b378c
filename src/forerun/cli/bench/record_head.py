"""When, where and with which code something was measured: the head of every record."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forerun.cli.machine import read_cpu, read_memory
from forerun.cli.options.cache_dir import cache_dir


def record_head(
    model: str | Path | None, settings: Mapping[str, Any], peers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`peers` are the versions of other libraries that take part."""
    from datetime import UTC, datetime

    from forerun.bench.records.identity import commit_of, model_identity, versions

    head = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit_of(Path(__file__).parent),
        "machine": _machine(),
        "versions": versions(peers or {}),
        "settings": dict(settings),
    }
    if model is not None:
        head["model"] = model_identity(Path(model).name, model_path(model))
    return head


def model_path(model: str | Path) -> Path:
    from forerun.models.download.store import find_model

    return find_model(model, cache_dir()).resolve()


def _machine() -> dict[str, Any]:
    cpu = read_cpu()
    return {
        "cpu": cpu.name,
        "num_cores": cpu.num_cores,
        "features": list(cpu.features),
        "architecture": platform.machine(),
        "memory_bytes": read_memory().total_bytes,
    }
