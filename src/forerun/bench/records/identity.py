"""What was measured: the model's file and the code's commit."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from forerun.version import VERSION

_PACKAGES: Final = ("numpy", "numba", "llvmlite", "tokenizers", "gguf", "safetensors")
_BLOCK: Final = 1 << 20


def model_identity(name: str, path: Path) -> dict[str, Any]:
    """Name, size and SHA-256 of a model's file; of a folder's weight files, in order."""
    inside = sorted([*path.glob("*.safetensors"), *path.glob("*.gguf")])
    digest, num_bytes = hashlib.sha256(), 0
    for weights in [path] if path.is_file() else inside:
        with weights.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                num_bytes += len(block)
    return {"name": name, "file": path.name, "num_bytes": num_bytes, "sha256": digest.hexdigest()}


def versions(others: Mapping[str, str]) -> dict[str, str]:
    """Of Forerun, Python and what computes; `others` are the peers' own."""
    found = {"forerun": VERSION, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | dict(others)


def commit_of(folder: Path) -> str | None:
    """The git commit that `folder` stands at, "-dirty" where files differ; None outside git."""
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
