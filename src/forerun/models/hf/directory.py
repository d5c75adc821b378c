"""A Hugging Face directory as a checkpoint: config.json, safetensors in one file or several."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidWeights
from forerun.models.hf.config import read_hf_config
from forerun.models.hf.json_file import read_json, read_json_if_there
from forerun.models.hf.safetensors_file import SafetensorsFile
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.dequantize import dequantize
from forerun.models.weights.layout import check_config, check_tensors

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"

# Older exports store the rotary frequencies, which are computed anyway.
_IGNORED_SUFFIX: Final = ".rotary_emb.inv_freq"


class HfCheckpoint:
    """Implements `Checkpoint` for one directory."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._config_values = read_json(folder / "config.json")
        self.config = read_hf_config(self._config_values, folder / "config.json")
        check_config(self.config, folder / "config.json")
        self._files = {
            name: file for name, file in _open_files(folder).items() if self._is_wanted(name)
        }
        shapes = {name: file.shape(name) for name, file in self._files.items()}
        check_tensors(self.config, shapes, folder)

    def names(self) -> Iterator[str]:
        return iter(self._files)

    def has(self, name: str) -> bool:
        return name in self._files

    def tensor(self, name: str) -> Tensor:
        if name not in self._files:
            raise InvalidWeights(f"{self.path} has no tensor {name!r}; check the model's family.")
        return self._files[name].tensor(name)

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self.tensor(name)
        return dequantize(tensor.data, tensor.format).reshape(tensor.shape)

    def metadata(self) -> dict[str, Any]:
        """`directory`, and the contents of config.json and generation_config.json."""
        return {
            "directory": self.path,
            "config": dict(self._config_values),
            "generation_config": read_json_if_there(self.path / "generation_config.json"),
        }

    def _is_wanted(self, name: str) -> bool:
        """Return whether a tensor is needed; a tied head only repeats the embedding."""
        repeated = self.config.tie_embeddings and name == "lm_head.weight"
        return not repeated and not name.endswith(_IGNORED_SUFFIX)


def _open_files(folder: Path) -> dict[str, SafetensorsFile]:
    """Return the file of each tensor."""
    if (folder / INDEX).is_file():
        return _open_shards(folder)
    if not (folder / SINGLE).is_file():
        raise InvalidWeights(
            f"{folder} holds neither {SINGLE} nor {INDEX}; "
            "convert the weights to safetensors (other formats are not read)."
        )
    file = SafetensorsFile(folder / SINGLE)
    return dict.fromkeys(file.names(), file)


def read_weight_map(index: Path) -> dict[str, str]:
    """Return the file name of each tensor's shard."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidWeights(f"{index}: 'weight_map' is missing; download the file again.")
    for name, file_name in weight_map.items():
        if not isinstance(file_name, str) or Path(file_name).name != file_name:
            raise InvalidWeights(f"{index}: the file of tensor {name!r} is not a plain file name.")
    return weight_map


def _open_shards(folder: Path) -> dict[str, SafetensorsFile]:
    shards: dict[str, SafetensorsFile] = {}
    holders = {}
    for name, file_name in read_weight_map(folder / INDEX).items():
        if file_name not in shards:
            if not (folder / file_name).is_file():
                raise InvalidWeights(f"{folder}: shard {file_name!r} is missing; download it.")
            shards[file_name] = SafetensorsFile(folder / file_name)
        if not shards[file_name].has(name):
            raise InvalidWeights(f"{folder / file_name} lacks tensor {name!r}; download it again.")
        holders[name] = shards[file_name]
    return holders
