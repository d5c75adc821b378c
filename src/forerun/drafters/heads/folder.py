"""A trained head on disk: `config.json` and `model.safetensors`.

The weights have the names of EAGLE's own checkpoints (`fc.weight`, `midlayer.hidden_norm.weight`,
`d2t` …) and of Medusa's (`0.0.linear.weight`, `0.1.weight` …). `d2t` holds, for each id of the
draft vocabulary, how far the target's id is from it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from forerun.errors import InvalidOption, InvalidWeights, UnsupportedModel
from forerun.files import NO_SPACE, full_disk
from forerun.models.hf.json_file import read_json
from forerun.models.hf.safetensors_file import SafetensorsFile
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.dequantize import dequantize
from forerun.types import IntArray

FORMAT: Final = "forerun-head-1"
D2T: Final = "d2t"
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class HeadConfig:
    """What a head is, and for which target; `layers` are those of `models.llama.Taps`."""

    kind: str  # "eagle3" or "medusa"
    layers: tuple[int, ...]
    target_hidden_size: int
    target_vocab_size: int
    target_num_layers: int
    tokenizer_hash: str
    draft_vocab_size: int
    rms_norm_eps: float = 1e-5
    # eagle3: its decoder layer, as wide as the target
    intermediate_size: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    rope_theta: float = 10000.0
    max_len: int = 0
    fc_norm: bool = False  # 3.1: each feature is normalised before they are fused
    norm_output: bool = False  # 3.1: what is fed back has passed the last norm
    norm_before_residual: bool = False  # as vLLM's speculators have it
    # medusa
    num_guesses: int = 0

    def check_target(self, where: object, **found: object) -> None:
        """Refuse another target than the head's own; `found` are the target's values."""
        words = {
            "target_hidden_size": "hidden size",
            "target_vocab_size": "vocabulary size",
            "target_num_layers": "number of layers",
            "tokenizer_hash": "tokenizer",
        }
        for name, value in found.items():
            if getattr(self, name) != value:
                raise InvalidOption(
                    f"{where} was trained for another target: its {words[name]} is "
                    f"{getattr(self, name)}, and this target's {value}; take a head made for it."
                )


class HeadFolder:
    """An opened head; a `WeightSource` for the kernel sets."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder
        if not (folder / _CONFIG).is_file() or not (folder / _WEIGHTS).is_file():
            raise InvalidWeights(
                f"{folder} is no trained head: it must hold {_CONFIG} and {_WEIGHTS}."
            )
        self.config = read_config(read_json(folder / _CONFIG), folder / _CONFIG)
        if self.config.kind != kind:
            raise InvalidOption(
                f'{folder} holds a head of kind "{self.config.kind}"; '
                f'give method "{self.config.kind}" for it.'
            )
        self._file = SafetensorsFile(folder / _WEIGHTS)

    def names(self) -> Iterator[str]:
        return self._file.names()

    def has(self, name: str) -> bool:
        return self._file.has(name)

    def tensor(self, name: str) -> Tensor:
        return self._file.tensor(name)

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self.tensor(name)
        return dequantize(tensor.data, tensor.format).reshape(tensor.shape)

    def check(self, shapes: Shapes) -> None:
        """All weights are there, in these shapes, and every number is finite."""
        for name, shape in shapes.items():
            if not self.has(name):
                raise InvalidWeights(
                    f"{self.path}: tensor {name!r} is missing; train or copy again."
                )
            if self._file.shape(name) != shape:
                raise InvalidWeights(
                    f"{self.path}: tensor {name!r} has shape {list(self._file.shape(name))} where "
                    f"its config says {list(shape)}; train or copy again."
                )
            if name != D2T and not np.isfinite(self.float32(name)).all():
                raise InvalidWeights(
                    f"{self.path}: tensor {name!r} has entries that are not finite; train again."
                )
        extra = set(self.names()) - set(shapes)
        if extra:
            raise UnsupportedModel(
                f"{self.path}: tensor {min(extra)!r} has no place in a head of kind "
                f'"{self.config.kind}"; check where the file comes from.'
            )

    def draft_tokens(self) -> IntArray:
        """The target's id of each draft id; they ascend."""
        num = self.config.draft_vocab_size
        tokens = self._file.integers(D2T) + np.arange(num)
        is_sound = tokens[0] >= 0 and tokens[-1] < self.config.target_vocab_size
        if not is_sound or not (np.diff(tokens) > 0).all():
            raise InvalidWeights(
                f"{self.path}: {D2T!r} does not map the draft vocabulary to ascending ids of the "
                "target; train or copy again."
            )
        return tokens


def read_config(values: Mapping[str, Any], path: Path) -> HeadConfig:
    """Each value checked; `path` is where they stand."""
    if values.get("format") != FORMAT:
        raise UnsupportedModel(f"{path}: format is not {FORMAT!r}; this is no head of Forerun's.")
    found: dict[str, Any] = {}
    for field in fields(HeadConfig):
        value = values.get(field.name, field.default)
        if not _KINDS[str(field.type)](value):
            raise InvalidWeights(f"{path}: {field.name!r} is {str(value)[:40]!r}; train again.")
        found[field.name] = tuple(value) if field.name == "layers" else value
    config = HeadConfig(**found)
    _check_layers(config, path)
    sizes = (config.target_hidden_size, config.target_vocab_size, config.draft_vocab_size)
    if min(sizes) < 1 or config.draft_vocab_size > config.target_vocab_size:
        raise InvalidWeights(f"{path}: its sizes {list(sizes)} fit no head; train again.")
    return config


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


_KINDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "str": lambda value: isinstance(value, str),
    "int": _is_size,
    "float": lambda value: type(value) in (int, float) and 0 < value < 1e30,
    "bool": lambda value: isinstance(value, bool),
    "tuple[int, ...]": lambda value: (
        isinstance(value, list | tuple) and len(value) > 0 and all(map(_is_size, value))
    ),
}


def _check_layers(config: HeadConfig, path: Path) -> None:
    layers = config.layers
    if list(layers) != sorted(set(layers)) or layers[-1] > config.target_num_layers:
        raise InvalidWeights(
            f"{path}: layers {list(layers)} must ascend and be at most "
            f"{config.target_num_layers}, the target's; train again."
        )


def save_head(
    folder: Path,
    config: HeadConfig,
    weights: Mapping[str, npt.NDArray[Any]],
    extra: Mapping[str, bytes] | None = None,
) -> None:
    """All files or none: they are written beside the folder, which then takes its name.

    `extra` are further files by name, such as what a training needs to go on.
    """
    text = json.dumps({"format": FORMAT, **asdict(config)}, indent=2)
    whole = {name: np.ascontiguousarray(weight) for name, weight in weights.items()}
    files = {_WEIGHTS: save(whole), **(extra or {}), _CONFIG: f"{text}\n".encode()}
    folder = Path(os.path.realpath(folder))
    part, old = (folder.with_name(f".{folder.name}.{end}") for end in ("part", "old"))
    try:
        for rest in (part, old):
            shutil.rmtree(rest, ignore_errors=True)
        part.mkdir(parents=True)
        for name, data in files.items():
            (part / name).write_bytes(data)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        if error.errno in NO_SPACE:
            raise full_disk(folder, error) from None
        raise InvalidOption(
            f"cannot write {folder}: {error.strerror}; choose another place."
        ) from None
