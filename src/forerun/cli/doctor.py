"""`forerun doctor`: what this machine offers, and what is missing."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import typer

from forerun.cli import machine
from forerun.cli.terminal.output import say_json
from forerun.cli.terminal.screen import screen
from forerun.errors import InvalidOption
from forerun.models.download.store import default_cache_dir
from forerun.version import VERSION

GIB: Final = 2**30


@dataclass(frozen=True)
class Finding:
    """One line of the report; `remedy` is set only if something is missing."""

    subject: str
    found: str
    remedy: str | None = None


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print what Forerun finds on this machine, and how to install what is missing."""
    findings = [
        Finding("forerun", VERSION),
        Finding("python", f"{platform.python_version()} ({platform.platform(terse=True)})"),
        *_cpu_findings(machine.read_cpu()),
        _memory_finding(machine.read_memory()),
        _disk_finding(),
        _numba_finding(),
        _gpu_finding(machine.gpu_names(), machine.gpu_missing()),
        *_extra_findings(machine.missing_by_extra()),
    ]
    if as_json:
        say_json([asdict(finding) for finding in findings], indent=2)
    else:
        _print(findings)


def _cpu_findings(cpu: machine.Cpu) -> list[Finding]:
    cores = f"{cpu.num_cores} of {cpu.num_cores_installed}"
    if cpu.quota is not None:
        cores += f", limited to {cpu.quota:g} cores of CPU time"
    return [
        Finding("cpu", cpu.name),
        Finding("cpu features", ", ".join(cpu.features) or "none that kernels use"),
        Finding("usable cores", cores),
    ]


def _memory_finding(memory: machine.Memory) -> Finding:
    if memory.total_bytes is None or memory.available_bytes is None:
        return Finding("memory", "unknown on this system")
    free, total = memory.available_bytes / GIB, memory.total_bytes / GIB
    return Finding("memory", f"{free:.1f} GiB free of {total:.1f} GiB")


def _disk_finding() -> Finding:
    remedy = "set FORERUN_CACHE to a writable folder"
    try:
        folder = default_cache_dir()
        free = f"{folder}, {machine.free_disk(folder) / GIB:.1f} GiB free"
        can_keep = machine.can_be_made(folder)
    except OSError as error:
        return Finding("cache folder", f"{folder} cannot be used: {error.strerror}", remedy)
    except InvalidOption as error:
        return Finding("cache folder", str(error), remedy)
    if not can_keep:
        return Finding("cache folder", f"{folder} is not writable", remedy)
    return Finding("cache folder", free)


def _numba_finding() -> Finding:
    version = machine.numba_version()
    if version is None:
        return Finding("numba", "missing", "pip install numba")
    return Finding("numba", version)


def _gpu_finding(names: tuple[str, ...], missing: str | None) -> Finding:
    if not names:
        return Finding("gpu", "no NVIDIA device found; the CPU kernels need none")
    if missing is None:
        return Finding("gpu", ", ".join(names))
    remedy = 'pip install --force-reinstall "forerun[gpu]"'
    if missing == "torch":
        remedy = 'pip install "forerun[gpu]"'
    if missing == "C compiler":
        remedy = "install gcc and Python's headers: Triton compiles what launches its kernels"
    return Finding("gpu", f"{', '.join(names)}, but no {missing}", remedy)


def _extra_findings(missing_by_extra: dict[str, tuple[str, ...]]) -> list[Finding]:
    if not missing_by_extra:
        return [Finding("extras", "unknown: forerun is not installed", "pip install forerun")]
    return [_extra_finding(*item) for item in missing_by_extra.items()]


def _extra_finding(extra: str, missing: tuple[str, ...]) -> Finding:
    subject = f"extra [{extra}]"
    if not missing:
        return Finding(subject, "installed")
    return Finding(subject, f"missing: {', '.join(missing)}", f'pip install "forerun[{extra}]"')


def _print(findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        found = Text(finding.found)
        if finding.remedy is not None:
            found.append(f"\n→ {finding.remedy}", style="yellow")  # for copying
        table.add_row(Text(finding.subject), found)
    screen().print(table)
