"""Facts about this machine, read without importing anything heavy but numba itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.usable_cores import CGROUP, PROC, cores_at_once, cpu_quota, num_usable_cores

# Features that kernels use, with their names in Linux and LLVM.
FEATURES: Final = {
    "avx2": {"avx2"},
    "fma": {"fma"},
    "avxvnni": {"avx_vnni", "avxvnni"},
    "avx512f": {"avx512f"},
    "avx512vnni": {"avx512_vnni", "avx512vnni"},
    "neon": {"asimd", "neon"},
    "dotprod": {"asimddp", "dotprod"},
    "i8mm": {"i8mm"},
}
EXTRAS: Final = ("serve", "structured", "gpu", "train", "plot", "bench")


@dataclass(frozen=True)
class Cpu:
    name: str
    features: tuple[str, ...]
    num_cores: int  # usable by this process
    num_cores_installed: int
    quota: float | None  # a container's limit, in cores of CPU time

    @property
    def num_threads(self) -> int:
        """The default number of threads."""
        return cores_at_once(self.num_cores, self.quota)


@dataclass(frozen=True)
class Memory:
    total_bytes: int | None
    available_bytes: int | None


def read_cpu(proc: Path = PROC, cgroup: Path = CGROUP) -> Cpu:
    installed, usable = os.cpu_count() or 1, num_usable_cores()
    llvm_name, flags = _llvm_view()
    flags |= set((_first_match(proc / "cpuinfo", r"(?:flags|Features)\s*:(.+)") or "").split())
    features = tuple(name for name, aliases in FEATURES.items() if aliases & flags)
    name = _first_match(proc / "cpuinfo", r"model name\s*:(.+)")
    quota = cpu_quota(proc, cgroup)
    return Cpu(name or llvm_name or platform.machine(), features, usable, installed, quota)


def _llvm_view() -> tuple[str, set[str]]:
    try:
        from llvmlite import binding
    except ImportError:
        return "", set()
    host = binding.get_host_cpu_features()
    return binding.get_host_cpu_name(), {name for name, present in host.items() if present}


def read_memory(proc: Path = PROC, cgroup: Path = CGROUP) -> Memory:
    """Return the machine's memory, or the container's limit if that is lower."""
    total = _kibibytes(proc, "MemTotal")
    available = _kibibytes(proc, "MemAvailable")
    limit = _first_match(cgroup / "memory.max", r"(\d+)")
    if limit is not None and total is not None:
        used = int(_first_match(cgroup / "memory.current", r"(\d+)") or 0)
        total = min(total, int(limit))
        available = min(available or total, max(int(limit) - used, 0))
    return Memory(total, available)


def _kibibytes(proc: Path, name: str) -> int | None:
    found = _first_match(proc / "meminfo", rf"{name}:\s*(\d+) kB")
    return None if found is None else int(found) * 1024


def free_disk(folder: Path) -> int:
    """Return the free bytes where `folder` is, or would be made."""
    return shutil.disk_usage(_nearest(folder)).free


def can_be_made(folder: Path) -> bool:
    """Whether `folder` exists and is writable, or can be made."""
    there = _nearest(folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _nearest(path: Path) -> Path:
    """Return `path`, or its nearest parent that exists."""
    while not path.exists():
        path = path.parent
    return path


def numba_version() -> str | None:
    try:
        return importlib.metadata.version("numba")
    except importlib.metadata.PackageNotFoundError:
        return None


def gpu_names(proc: Path = PROC) -> tuple[str, ...]:
    """Return the NVIDIA devices that the driver lists, without asking a library."""
    files = sorted(proc.glob("driver/nvidia/gpus/*/information"))
    return tuple(_first_match(file, r"Model:\s*(.+)") or "NVIDIA GPU" for file in files)


def gpu_missing() -> str | None:
    """Return the first requirement of the GPU kernels that is missing; import nothing."""
    if not is_importable("torch"):
        return "torch"
    if importlib.metadata.version("torch").endswith("+cpu"):
        return "torch with CUDA"
    if not is_importable("triton"):
        return "triton"
    has_compiler = "CC" in os.environ or any(map(shutil.which, ("gcc", "clang")))
    return None if has_compiler else "C compiler"


def is_importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def missing_by_extra() -> dict[str, tuple[str, ...]]:
    """Return the missing packages of every extra; nothing if Forerun itself is not installed."""
    return {
        extra: tuple(name for name in packages if not is_importable(name.replace("-", "_")))
        for extra, packages in _packages_by_extra().items()
    }


def _packages_by_extra() -> dict[str, list[str]]:
    """Read the extras from Forerun's metadata, so that pyproject.toml stays the only list."""
    packages: dict[str, list[str]] = {extra: [] for extra in EXTRAS}
    try:
        requirements = importlib.metadata.requires("forerun")
    except importlib.metadata.PackageNotFoundError:  # on the path, but not installed
        return {}
    for requirement in requirements or ():
        found = re.match(r"""([\w.-]+).*;.*extra == ['"](\w+)['"]""", requirement)
        if found and found[2] in packages:
            packages[found[2]].append(found[1])
    return packages


def _first_match(file: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, file.read_text("utf-8", errors="replace"))
    except OSError:
        return None
    return found[1].strip() if found else None
