"""Open a model and its tokenizer, whatever kind of file they are in."""

from __future__ import annotations

from pathlib import Path

from forerun.errors import InvalidWeights
from forerun.models.download.store import default_cache_dir, find_model
from forerun.models.gguf.file import GgufCheckpoint
from forerun.models.gguf.tokenizer import tokenizer_from_gguf
from forerun.models.hf.directory import HfCheckpoint
from forerun.models.hf.tokenizer import tokenizer_from_directory
from forerun.models.text.tokenizer import Tokenizer
from forerun.models.weights.checkpoint import Checkpoint


def open_checkpoint(model: str | Path, cache_dir: Path | None = None) -> Checkpoint:
    """Open a GGUF file, a Hugging Face directory, or a pulled model by its name."""
    path = find_model(model, default_cache_dir() if cache_dir is None else cache_dir)
    if path.is_dir():
        return _open_directory(path)
    return GgufCheckpoint(path)


def _open_directory(folder: Path) -> Checkpoint:
    """Open a directory with config.json and safetensors, or with a single GGUF file.

    The latter may have a config.json too, which in repositories of GGUF files says next to nothing.
    """
    ggufs = sorted(folder.glob("*.gguf"))
    has_safetensors = any(folder.glob("*.safetensors"))
    if (folder / "config.json").is_file() and (has_safetensors or not ggufs):
        return HfCheckpoint(folder)
    if len(ggufs) == 1:
        return GgufCheckpoint(ggufs[0])
    if not ggufs:
        raise InvalidWeights(
            f"{folder} holds no model: neither a config.json with safetensors nor a GGUF file; "
            f"give another folder, or a file."
        )
    raise InvalidWeights(f"{folder} has {len(ggufs)} GGUF files; give the path of one.")


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Load the tokenizer of a checkpoint."""
    metadata = checkpoint.metadata()
    if "directory" in metadata:
        return tokenizer_from_directory(
            metadata["directory"], metadata["config"], metadata["generation_config"]
        )
    return tokenizer_from_gguf(metadata)
