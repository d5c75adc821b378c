"""Heads that come with the package, found by the target that they were trained for."""

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
    """Equal for all files of one model, whatever their format and quantisation."""
    return sha256(checkpoint.float32(_SIGNATURE).astype("<f4").tobytes()).hexdigest()


def shipped_heads(fingerprint: str, folder: Path = _FOLDER) -> list[Path]:
    """The folders of heads for the model with this fingerprint, by name."""
    configs = sorted(folder.glob("*/config.json"))
    return [
        path.parent for path in configs if read_json(path).get("target_fingerprint") == fingerprint
    ]
