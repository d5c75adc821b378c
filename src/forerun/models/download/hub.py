"""Models of the Hugging Face hub: which files of a repository to take, and their download."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Final

from forerun.errors import DownloadFailed, ForerunError
from forerun.files import NO_SPACE
from forerun.models.download.packages import Progress
from forerun.models.download.store import publish
from forerun.models.hf.directory import INDEX, SINGLE, read_weight_map

_DEFAULT_VARIANT: Final = "Q4_K_M"


def pull_from_hub(name: str, unfinished: Path, folder: Path, progress: Progress) -> None:
    """Fetch `org/name`, or one file of it as `org/name:Q8_0`, into `folder`.

    The hub's client downloads into `unfinished`, and resumes there after an interruption.
    """
    from huggingface_hub import HfApi, snapshot_download

    repo, _, variant = name.partition(":")
    progress(name, 0, 0)
    try:
        info = HfApi().model_info(repo)
        fetch = partial(snapshot_download, repo, revision=info.sha, local_dir=unfinished)
        listed = [file.rfilename for file in info.siblings or []]
        files = _choose_files(repo, variant, listed)
        fetch(allow_patterns=files)
        if INDEX in files:
            shards = sorted(set(read_weight_map(unfinished / INDEX).values()))
            _require_all(repo, shards, listed)
            fetch(allow_patterns=shards)
    except ForerunError:
        raise
    except Exception as error:
        # Depending on its version, the client raises its own, its transport's or system errors.
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise
        raise DownloadFailed(
            f"{repo} could not be downloaded from the hub ({_first_line(error)}); "
            "check the name, the network, and that you are logged in if it is gated."
        ) from None
    shutil.rmtree(unfinished / ".cache", ignore_errors=True)  # the client's state for resuming
    publish(unfinished, folder)


def _require_all(repo: str, shards: list[str], listed: list[str]) -> None:
    if missing := [shard for shard in shards if shard not in listed]:
        raise DownloadFailed(
            f"{repo} lacks {', '.join(missing)[:200]}, which its {INDEX} names; pull another one."
        )


def _choose_files(repo: str, variant: str, listed: list[str]) -> list[str]:
    """Return the configs with the weights or their index, or exactly one GGUF file.

    Only the top folder counts: others have the same weights for other programs, or other models.
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
    """Return the weights, without copies of them such as consolidated.safetensors."""
    if INDEX in top:
        return []  # the shards are read from the index once that is downloaded
    return [SINGLE] if SINGLE in top else safetensors  # files of heads may have other names


def _choose_gguf(repo: str, variant: str, ggufs: list[str]) -> str:
    wanted = variant or _DEFAULT_VARIANT
    exact = [file for file in ggufs if _has_part(file, wanted, is_last=True)]
    similar = [file for file in ggufs if _has_part(file, wanted, is_last=False)]
    chosen = exact or similar or ([] if variant else ggufs)
    if len(chosen) == 1:
        return chosen[0]
    raise DownloadFailed(
        f"{repo} has no single GGUF file for {wanted!r}; "
        f"name one as {repo}:VARIANT (files: {', '.join(sorted(ggufs))[:300]})."
    )


def _has_part(file: str, wanted: str, *, is_last: bool) -> bool:
    """Return whether a part of the file's name begins with `wanted`, or, with `is_last`, whether
    the name ends in it: m-BF16.gguf has no part F16, and m-Q6_K_L.gguf does not end in Q6_K."""
    stem, wanted = (name.lower().removesuffix(".gguf") for name in (file, wanted))
    return re.search(rf"(^|[-._]){re.escape(wanted)}{'$' if is_last else ''}", stem) is not None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
