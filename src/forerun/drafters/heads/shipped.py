"""Heads that come with the package, found by the fingerprint of their target."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from forerun.models.hf.json_file import read_json

_FOLDER: Final = Path(__file__).with_name("weights")
_SIGNATURE: Final = "model.norm.weight"  # never quantised: the same in every file of a model


class _Weights(Protocol):
    def float32(self, name: str) -> npt.NDArray[np.float32]: ...


def model_fingerprint(checkpoint: _Weights) -> str:
    """Return a hash that is equal for all files of a model, whatever their format."""
    return sha256(checkpoint.float32(_SIGNATURE).astype("<f4").tobytes()).hexdigest()


def shipped_heads(fingerprint: str, folder: Path = _FOLDER) -> list[Path]:
    """Return the folders of the heads for the model with this fingerprint, ordered by name."""
    configs = sorted(folder.glob("*/config.json"))
    return [
        path.parent for path in configs if read_json(path).get("target_fingerprint") == fingerprint
    ]
