"""When, where and with which code something was measured: the head of every record."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from forerun.cli.cache_dir import cache_dir
from forerun.cli.machine import read_cpu, read_memory


def circumstances() -> dict[str, Any]:
    from datetime import UTC, datetime

    from forerun.bench.identity import versions

    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": own_commit(),
        "machine": machine_facts(),
        "versions": versions({}),
    }


def own_commit() -> str | None:
    from forerun.bench.identity import commit_of

    return commit_of(Path(__file__).parent)


def machine_facts() -> dict[str, Any]:
    cpu = read_cpu()
    return {
        "cpu": cpu.name,
        "num_cores": cpu.num_cores,
        "features": list(cpu.features),
        "architecture": platform.machine(),
        "memory_bytes": read_memory().total_bytes,
    }


def model_facts(model: str) -> dict[str, Any]:
    """Name, file, size and SHA-256 of a model given by name or path."""
    from forerun.bench.identity import model_identity

    return model_identity(Path(model).name, model_path(model))


def model_path(model: str) -> Path:
    from forerun.models.download.store import find_model

    return find_model(model, cache_dir(os.environ)).resolve()
