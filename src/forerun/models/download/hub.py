"""A model from the Hugging Face hub."""

from __future__ import annotations

import shutil
from pathlib import Path

from forerun.errors import DownloadFailed
from forerun.files import NO_SPACE
from forerun.models.download.packages import Progress
from forerun.models.download.store import publish

_DIRECTORY_FILES = ["*.safetensors", "*.json", "*.jinja"]
_DEFAULT_VARIANT = "Q4_K_M"


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
