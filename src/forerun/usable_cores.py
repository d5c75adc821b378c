"""The cores that this process may use, and how much of their time its container allows, by Linux's
control groups of both versions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from forerun.errors import InvalidOption
from forerun.option_checks import is_whole

PROC: Final = Path("/proc")
CGROUP: Final = Path("/sys/fs/cgroup")


def num_usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # absent on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolved_num_threads(num_threads: int | None) -> int:
    """Return the number of threads to use: by default one for each core that this process may use,
    and no more than its container's quota keeps running."""
    most = num_usable_cores()
    if num_threads is None:
        return cores_at_once(most, cpu_quota())
    if not (is_whole(num_threads) and 1 <= num_threads <= most):
        raise InvalidOption(
            f"num_threads={num_threads!r} is not allowed; give 1 … {most}, the cores this process "
            "may use."
        )
    return int(num_threads)


def cpu_quota(proc: Path = PROC, cgroup: Path = CGROUP) -> float | None:
    """Return the CPU time per second that this process may spend, in cores: the smallest limit of
    its group and those around it; None if there is none."""
    quotas = (_quota(folder) for folder in _folders(proc, cgroup))
    return min((quota for quota in quotas if quota is not None), default=None)


def cores_at_once(num_cores: int, quota: float | None) -> int:
    """Return how many cores to keep busy: beyond its quota, all of a process's threads are stopped
    for a while."""
    return num_cores if quota is None else max(1, min(num_cores, int(quota)))


def _folders(proc: Path, cgroup: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups, and of all groups around them that it
    can see."""
    yield cgroup
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        parts = Path(path).parts[1:]  # a container may be shown its group as the outermost
        for base in (cgroup / controllers, cgroup / "cpu") if controllers else (cgroup,):
            yield from (base.joinpath(*parts[:num]) for num in range(len(parts) + 1))


def _quota(folder: Path) -> float | None:
    spend, period, *_ = (*_text(folder / "cpu.max").split(), "", "")
    if not spend:
        spend, period = (_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    try:
        quota = int(spend) / int(period)
    except (ValueError, ZeroDivisionError):  # "max", or no such file
        return None
    return quota if quota > 0 else None  # version 1 says -1


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
