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
from forerun.models.download.store import default_cache_dir, find_model, model_dir, publish

_DIRECTORY_FILES = ["*.safetensors", "*.json", "*.jinja"]
_DEFAULT_VARIANT = "Q4_K_M"


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def pull(name: str, cache_dir: Path | None = None, progress: Progress = _silent) -> Path:
    """Make model `name` available and return its path; nothing is fetched twice."""
    cache_dir = default_cache_dir() if cache_dir is None else cache_dir
    folder = model_dir(name, cache_dir)
    if name not in SOURCES and "/" not in name:
        raise unknown_name("model", name, SOURCES)
    if not folder.exists():
        partial = cache_dir / "partial" / folder.relative_to(cache_dir / "models")
        try:
            _fetch(name, partial, folder, progress)
        except DownloadFailed:
            if not folder.exists():  # else another process finished it meanwhile
                raise
    return find_model(name, cache_dir)


def _fetch(name: str, partial: Path, folder: Path, progress: Progress) -> None:
    try:
        partial.mkdir(parents=True, exist_ok=True)
        if name in SOURCES:
            _pull_source(SOURCES[name], partial, folder, progress)
        else:
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


def pull_from_hub(name: str, partial: Path, folder: Path, progress: Progress) -> None:
    """Fetch `org/name`, or one file of it as `org/name:Q8_0`, into `folder`.

    The hub's client keeps what it has of each file in `partial`, and resumes there.
    """
    from huggingface_hub import HfApi, snapshot_download

    repo, _, variant = name.partition(":")
    progress(name, 0, 0)
    try:
        listed = [file.rfilename for file in HfApi().model_info(repo).siblings or []]
        patterns = _choose_files(repo, variant, listed)
        snapshot_download(repo, local_dir=partial, allow_patterns=patterns)
    except DownloadFailed:
        raise
    except Exception as error:
        # The client raises its own errors, its transport's and the system's, by version.
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise
        raise DownloadFailed(
            f"{repo} could not be downloaded from the hub ({_first_line(error)}); "
            "check the name, the network, and that you are logged in if it is gated."
        ) from None
    shutil.rmtree(partial / ".cache", ignore_errors=True)  # the client's notes for resuming
    publish(partial, folder)


def _choose_files(repo: str, variant: str, files: list[str]) -> list[str]:
    """Safetensors with their configs, or exactly one GGUF file."""
    if not variant and any(file.endswith(".safetensors") for file in files):
        return _DIRECTORY_FILES
    ggufs = [file for file in files if file.endswith(".gguf") and "/" not in file]
    wanted = variant or _DEFAULT_VARIANT
    matches = [file for file in ggufs if wanted.lower() in file.lower()]
    chosen = matches if variant or matches else ggufs
    if len(chosen) == 1:
        return chosen
    offered = ", ".join(sorted(ggufs)) or "none"
    raise DownloadFailed(
        f"{repo} has no single GGUF file for {wanted!r}; "
        f"name one as {repo}:VARIANT (files: {offered[:300]})."
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
