"""The head of every record: when, where and with which code something was measured."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from forerun.cli.machine import read_cpu, read_memory
from forerun.models.download.store import default_cache_dir, find_model
from forerun.version import VERSION

_PACKAGES: Final = ("numpy", "numba", "llvmlite", "tokenizers", "gguf", "safetensors")
_BLOCK: Final = 1 << 20


def record_head(
    model: str | Path | None, settings: Mapping[str, Any], peers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the head of a record; `peers` are the versions of other libraries that take part."""
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
    return find_model(model, default_cache_dir()).resolve()


def _machine() -> dict[str, Any]:
    cpu = read_cpu()
    return {
        "cpu": cpu.name,
        "num_cores": cpu.num_cores,
        "features": list(cpu.features),
        "architecture": platform.machine(),
        "memory_bytes": read_memory().total_bytes,
        **_gpu(),
    }


def _gpu() -> dict[str, str]:
    """Return the GPU's name if torch is loaded: it is not imported only for a record."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    return {"gpu": torch.cuda.get_device_name()}


def model_identity(name: str, path: Path) -> dict[str, Any]:
    """Return name, size and SHA-256 of a model's file, or of a folder's sorted weight files."""
    inside = sorted([*path.glob("*.safetensors"), *path.glob("*.gguf")])
    digest, num_bytes = hashlib.sha256(), 0
    for weights in [path] if path.is_file() else inside:
        with weights.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                num_bytes += len(block)
    return {"name": name, "file": path.name, "num_bytes": num_bytes, "sha256": digest.hexdigest()}


def versions(others: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of Forerun, Python and numeric packages, and `others`."""
    found = {"forerun": VERSION, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | dict(others)


def commit_of(folder: Path) -> str | None:
    """Return the git commit of `folder`, with "-dirty" if files differ; None outside git."""
    head = _git(folder, "rev-parse", "HEAD")
    if head is None:
        return None
    return f"{head}-dirty" if _git(folder, "status", "--porcelain", "-uno") else head


def _git(folder: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
