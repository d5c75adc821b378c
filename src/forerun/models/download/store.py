"""Where pulled models are kept: one folder per name in the cache directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.errors import InvalidOption, UnknownModel
from forerun.models.download.sources import SOURCES

_WORD: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"  # as long as the hub allows
_NAME: Final = re.compile(rf"{_WORD}(/{_WORD})?(:{_WORD})?")


@dataclass(frozen=True)
class InstalledModel:
    """A model on disk: `path` is what `open_checkpoint` takes."""

    name: str
    path: Path
    num_bytes: int


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `FORERUN_CACHE` if set, else `forerun` in the user's cache folder.

    `LLM` and the command line both use this, so that each finds what the other pulled.
    """
    if chosen := environ.get("FORERUN_CACHE"):
        with _home_known(chosen):
            return Path(chosen).expanduser()
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base) / "forerun"
    with _home_known("~"):
        return Path.home() / ".cache" / "forerun"


@contextmanager
def _home_known(path: str) -> Iterator[None]:
    """Turn the bare `RuntimeError` of an unknown home folder into `InvalidOption`."""
    try:
        yield
    except RuntimeError:
        raise InvalidOption(
            f"nobody knows the home folder in {path!r}; set FORERUN_CACHE to a folder."
        ) from None


def model_dir(name: str, cache_dir: Path) -> Path:
    """Return the folder of a pulled name; ":" (before a hub file's variant) is written "@"."""
    if not _NAME.fullmatch(name):
        raise UnknownModel(
            f"{name!r} cannot be pulled; give a name from `forerun models`, "
            "or a hub id such as org/name (a path needs no pull)."
        )
    return cache_dir / "models" / name.replace(":", "@")


def publish(ready: Path, folder: Path) -> None:
    """Move a finished folder to its place in one step, unless another process was first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        ready.replace(folder)
    except OSError:
        if not folder.is_dir():
            raise


def find_model(model: str | Path, cache_dir: Path) -> Path:
    """Return the GGUF file or directory that `model` names: a path, or a pulled name."""
    if isinstance(model, Path) or _exists(model):
        return Path(model)
    folder = model_dir(model, cache_dir) if _NAME.fullmatch(model) else None
    found = None if folder is None else main_file(folder)
    if found is not None:
        return found
    if model in SOURCES or (_NAME.fullmatch(model) and model.count("/") == 1):
        raise UnknownModel(f"{model!r} is not here yet; run: forerun pull {model}")
    names = ", ".join(SOURCES)
    if model.endswith(".gguf") or model.startswith((".", "/", "~")):
        raise UnknownModel(
            f"{model} does not exist; give a GGUF file, a Hugging Face folder, or one of {names}."
        )
    raise UnknownModel(f"{model!r} is neither a path nor a pulled model; pull one of {names}.")


def _exists(model: str) -> bool:
    try:
        return bool(model) and Path(model).exists()
    except OSError:  # a name that no file system allows
        return False


def installed_models(cache_dir: Path) -> list[InstalledModel]:
    """Return all pulled models, ordered by name; `OSError` if the folder cannot be read."""
    root = cache_dir / "models"
    try:
        os.listdir(root)
    except (FileNotFoundError, NotADirectoryError):
        return []
    folders = [f for f in sorted([*root.glob("*"), *root.glob("*/*")]) if f.is_dir()]
    installed = []
    for folder in folders:
        path = main_file(folder)
        if path is not None:
            num_bytes = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
            name = folder.relative_to(root).as_posix().replace("@", ":")
            installed.append(InstalledModel(name, path, num_bytes))
    return installed


def main_file(folder: Path) -> Path | None:
    """Return what `open_checkpoint` takes: a Hugging Face directory itself, or its GGUF file."""
    if (folder / "config.json").is_file():
        return folder
    files = sorted(folder.glob("*.gguf"))
    return files[0] if files else None
