"""Models of the hub: which files of a repository are the model, and their download."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from forerun.errors import DownloadFailed, ForerunError
from forerun.files import NO_SPACE
from forerun.models.download.packages import Progress
from forerun.models.download.store import publish
from forerun.models.hf.directory import INDEX, SINGLE, read_weight_map

_DEFAULT_VARIANT: Final = "Q4_K_M"


def pull_from_hub(name: str, partial: Path, folder: Path, progress: Progress) -> None:
    """Fetch `org/name`, or one file of it as `org/name:Q8_0`, into `folder`.

    The hub's client keeps what it has of each file in `partial`, and resumes there.
    """
    from huggingface_hub import HfApi, snapshot_download

    repo, _, variant = name.partition(":")
    progress(name, 0, 0)
    try:
        listed = [file.rfilename for file in HfApi().model_info(repo).siblings or []]
        files = _choose_files(repo, variant, listed)
        snapshot_download(repo, local_dir=partial, allow_patterns=files)
        if INDEX in files:
            shards = sorted(set(read_weight_map(partial / INDEX).values()))
            snapshot_download(repo, local_dir=partial, allow_patterns=shards)
    except ForerunError:
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


def _choose_files(repo: str, variant: str, listed: list[str]) -> list[str]:
    """The configs with the weights or their index, or exactly one GGUF file.

    Folders inside a repository hold the same weights for other programs, or other models.
    """
    top = [file for file in listed if "/" not in file]
    safetensors = [file for file in top if file.endswith(".safetensors")]
    ggufs = [file for file in top if file.endswith(".gguf")]
    if not variant and safetensors and "config.json" in top:
        configs = [file for file in top if file.endswith((".json", ".jinja"))]
        return configs + _choose_weights(top, safetensors)
    if ggufs:
        return [_choose_gguf(repo, variant, ggufs)]
    missing = "config.json" if safetensors else "safetensors or GGUF files"
    if variant:
        missing = "GGUF files"
    raise DownloadFailed(
        f"{repo} has no {missing} in its top folder; pull another repository, of a whole model."
    )


def _choose_weights(top: list[str], safetensors: list[str]) -> list[str]:
    """Without those that hold the same once more, such as consolidated.safetensors."""
    if INDEX in top:
        return []  # it says itself which they are
    return [SINGLE] if SINGLE in top else safetensors  # a head's may have other names


def _choose_gguf(repo: str, variant: str, ggufs: list[str]) -> str:
    wanted = variant or _DEFAULT_VARIANT
    exact = [file for file in ggufs if _is_variant(file, wanted)]
    similar = [file for file in ggufs if wanted.lower() in file.lower()]
    chosen = exact or similar or ([] if variant else ggufs)
    if len(chosen) == 1:
        return chosen[0]
    raise DownloadFailed(
        f"{repo} has no single GGUF file for {wanted!r}; "
        f"name one as {repo}:VARIANT (files: {', '.join(sorted(ggufs))[:300]})."
    )


def _is_variant(file: str, wanted: str) -> bool:
    """Whether the name ends in just that: m-Q6_K_L.gguf is not Q6_K, nor m-BF16.gguf F16."""
    stem, wanted = file.lower().removesuffix(".gguf"), wanted.lower().removesuffix(".gguf")
    return stem == wanted or stem.endswith(tuple(mark + wanted for mark in "-._"))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
