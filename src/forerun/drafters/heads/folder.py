"""A trained head on disk: `config.json` and `model.safetensors`.

The weights have the names of EAGLE's own checkpoints (`fc.weight`, `midlayer.hidden_norm.weight`,
`d2t` …) and of Medusa's (`0.0.linear.weight`, `0.1.weight` …). `d2t` has, for each id of the draft
vocabulary, what must be added to get the target's id. A packed head has its matrices as rows of
Q8_0 blocks, 8 bits a weight, with `.q8_0` appended to their names.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from forerun.drafters.heads.config import HeadConfig, read_config
from forerun.drafters.heads.layouts import (
    LAYOUTS,
    T2D,
    TOKEN_MAP,
    check_usual,
    eagle3_names,
    layout_of,
    read_eagle3,
    read_medusa,
    written_config,
    written_weights,
)
from forerun.errors import InvalidOption, InvalidWeights, UnsupportedModel
from forerun.files import NO_SPACE, full_disk
from forerun.models.hf.json_file import read_json
from forerun.models.hf.safetensors_file import SafetensorsFile
from forerun.models.text.tokenizer import TOKENIZER_FILES
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.dequantize import dequantize
from forerun.models.weights.formats import FORMATS
from forerun.models.weights.packing import packed
from forerun.types import IntArray

D2T: Final = "d2t"
EMBEDDING: Final = "embed_tokens.weight"
HISTORY: Final = "training.json"  # what each call of training did and measured
_PACKED: Final = ".q8_0"
_BLOCK_BYTES: Final = FORMATS["Q8_0"].block_bytes
_SLICE_BYTES: Final = 1 << 20
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_MEDUSA, _PICKLE = "medusa_lm_head.safetensors", "medusa_lm_head.pt"  # as Medusa calls them
_KEPT: Final = ("README.md", "LICENSE", ".gitattributes")  # kept when a head is written anew
_OWN_FILES: Final = frozenset({_CONFIG, _WEIGHTS, HISTORY, *TOKENIZER_FILES, *_KEPT})

Shapes = Mapping[str, tuple[int, ...]]


class HeadFolder:
    """An opened head; a `WeightSource` for the kernel sets."""

    def __init__(self, folder: Path, kind: str | None = None) -> None:
        """Open the head in `folder`; raises `InvalidOption` if it is not of the given `kind`."""
        self.path = folder
        self._file = SafetensorsFile(_weights_path(folder))
        values = read_json(folder / _CONFIG)
        self._layout = layout_of(values)
        stored = list(self._file.names())
        self._names = {name.removesuffix(_PACKED): name for name in stored}  # our name -> file's
        if self._layout is None:
            self.config = read_config(values, folder / _CONFIG)
        elif self._layout in LAYOUTS:
            self.config = read_eagle3(self._layout, values, folder / _CONFIG)
            self._names = eagle3_names(stored)
        else:
            self.config, self._names = read_medusa(values, folder / _CONFIG, self._file)
        twice = set(stored) - {T2D} - set(self._names.values())
        if twice:
            raise InvalidWeights(
                f"{folder}: tensor {min(twice)!r} is there under another name, too; get the head "
                "anew, or leave one of them out."
            )
        if kind not in (None, self.config.kind):
            raise InvalidOption(
                f'{folder} holds a head of kind "{self.config.kind}", and "{kind}" was asked for; '
                f'ask for "{self.config.kind}", or name another folder.'
            )

    @property
    def is_ours(self) -> bool:
        """Whether `save_head` wrote it; heads of other engines name no target and have no card."""
        return self._layout is None

    def fit(self, **target: Any) -> None:
        """Raise `InvalidOption` if the head was trained for another target.

        `target` are the config's fields about the target; they replace what the config of another
        engine does not say."""
        config, num_layers = self.config, target["target_num_layers"]
        config.check_target(self.path, **target)
        if self._layout in LAYOUTS:
            check_usual(self._layout, config.layers, num_layers, self.path / _CONFIG)
        layers = config.layers or (num_layers,)
        size = config.draft_vocab_size or target["target_vocab_size"]
        self.config = replace(config, layers=layers, draft_vocab_size=size, **target)

    def names(self) -> Iterator[str]:
        """Yield our names of the weights, without those that follow from others (`t2d`)."""
        return iter(self._names)

    @property
    def num_weights(self) -> int:
        """Weights that a guess may read; of an embedding it reads one row, which is not counted."""
        return sum(math.prod(self._shape(name)) for name in self.names() if name != EMBEDDING)

    def has(self, name: str) -> bool:
        return name in self._names

    def tensor(self, name: str) -> Tensor:
        """Return a weight as kernels multiply it: matrices in 8 bits a weight, half the bytes."""
        return packed(self._stored(name))

    def _stored(self, name: str) -> Tensor:
        stored = self._names[name]
        if stored.endswith(_PACKED):
            return self._file.blocks(stored, "Q8_0")
        return self._file.tensor(stored)

    def _shape(self, name: str) -> tuple[int, ...]:
        stored = self._names[name]
        return self._stored(name).shape if stored.endswith(_PACKED) else self._file.shape(stored)

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self._stored(name)
        return dequantize(tensor.data, tensor.format).reshape(tensor.shape)

    def check(self, shapes: Shapes) -> None:
        """Raise unless the weights are exactly these, in these shapes, and all are finite."""
        for name, shape in shapes.items():
            if not self.has(name):
                raise InvalidWeights(
                    f"{self.path}: tensor {name!r} is missing; train or copy again."
                )
            found = self._shape(name)
            if found != shape:
                raise InvalidWeights(
                    f"{self.path}: tensor {name!r} has shape {list(found)} where "
                    f"its config says {list(shape)}; train or copy again."
                )
            if name != D2T and not _is_finite(self._stored(name)):
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
        """Return the target's id of each draft id; they ascend."""
        num = self.config.draft_vocab_size
        if not self.has(D2T):  # the draft vocabulary is the target's
            return np.arange(num)
        stored = self._names[D2T]
        tokens = self._file.integers(stored)
        if TOKEN_MAP not in stored:
            tokens = tokens + np.arange(len(tokens))
        is_inside = tokens[0] >= 0 and tokens[-1] < self.config.target_vocab_size
        if len(tokens) != num or not is_inside or not (np.diff(tokens) > 0).all():
            raise InvalidWeights(
                f"{self.path}: {stored!r} does not map the draft vocabulary to ascending ids of "
                "the target; sort it, and the rows of matrices with it, or get the head anew."
            )
        return tokens


def _is_finite(tensor: Tensor) -> bool:
    """Return whether all numbers are finite: of packed rows the scales; floats in slices."""
    data = tensor.data
    if tensor.format == "Q8_0":
        scales = data.reshape(-1, _BLOCK_BYTES)[:, :2].copy().view(np.float16)
        return bool(np.isfinite(scales).all())
    step = max(1, _SLICE_BYTES // data.shape[1])
    slices = (tensor.floats(first, first + step) for first in range(0, len(data), step))
    return all(bool(np.isfinite(floats).all()) for floats in slices)


def save_head(
    folder: Path,
    config: HeadConfig,
    weights: Mapping[str, npt.NDArray[Any]],
    extra: Mapping[str, bytes] | None = None,
) -> None:
    """Write a head, all files or none: they are written beside the folder and then take its place.

    `extra` are further files by name, such as what training needs to continue.
    """
    _write(folder, weights, {**(extra or {}), _CONFIG: _config_text(config.written())})


def export_head(folder: HeadFolder, out: Path, layout: str, target: str) -> None:
    """Write the head in another engine's layout; `target` is that engine's name of its model."""
    values = written_config(layout, folder.config, target)
    weights = {name: _halved(folder.float32(name)) for name in folder.names() if name != D2T}
    tokens = folder.draft_tokens()
    weights[D2T] = tokens - np.arange(len(tokens))
    whole = written_weights(layout, weights, tokens, folder.config.target_vocab_size)
    _write(out, whole, {_CONFIG: _config_text(values)})


def _halved(array: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Return the array in half precision if nothing is lost, as with every matrix trained here."""
    half = array.astype(np.float16)
    return half if (half == array).all() else array


def pack_head(folder: HeadFolder, out: Path) -> None:
    """Write the head with its matrices packed as they are served, in half the bytes."""
    if not folder.is_ours:
        raise InvalidOption(
            f"{folder.path} is another engine's head, which does not name its target; train on it "
            "once, and pack what comes of it."
        )
    weights: dict[str, Any] = {}
    for name in folder.names():
        if name == D2T:
            weights[D2T] = folder.draft_tokens() - np.arange(folder.config.draft_vocab_size)
            continue
        tensor = folder.tensor(name)
        is_packed = tensor.format == "Q8_0"
        weights[name + _PACKED * is_packed] = tensor.data if is_packed else folder.float32(name)
    history = folder.path / HISTORY
    extra = {HISTORY: history.read_bytes()} if history.is_file() else {}
    save_head(out, folder.config, weights, extra)


def _weights_path(folder: Path) -> Path:
    found = [folder / name for name in (_WEIGHTS, _MEDUSA) if (folder / name).is_file()]
    if (folder / _CONFIG).is_file() and found:
        return found[0]
    if (folder / _PICKLE).is_file():
        raise UnsupportedModel(
            f"{folder} has its weights in {_PICKLE}, and reading that runs what is written in it; "
            f"convert it to {_MEDUSA} where you trust it."
        )
    raise InvalidWeights(f"{folder} is no trained head: it must hold {_CONFIG} and {_WEIGHTS}.")


def _config_text(values: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(values, indent=2)}\n".encode()


def _write(folder: Path, weights: Mapping[str, Any], others: Mapping[str, bytes]) -> None:
    whole = {name: np.ascontiguousarray(weight) for name, weight in weights.items()}
    files = {_WEIGHTS: save(whole), **others}
    folder = Path(os.path.realpath(folder))
    require_own(folder)
    part, old = (folder.with_name(f".{folder.name}.{end}") for end in ("part", "old"))
    try:
        _put_back(old, folder)
        for rest in (part, old):
            shutil.rmtree(rest, ignore_errors=True)
        part.mkdir(parents=True)
        for name, data in files.items():
            (part / name).write_bytes(data)
        for kept in (folder / name for name in _KEPT if (folder / name).is_file()):
            shutil.copyfile(kept, part / kept.name)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            _put_back(old, folder)
        if error.errno in NO_SPACE:
            raise full_disk(folder, error) from None
        raise InvalidOption(
            f"cannot write {folder}: {error.strerror}; choose another place."
        ) from None


def require_own(folder: Path) -> None:
    """Raise `InvalidOption` if the folder has files that do not belong to a head."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set[str]()
    if (folder / _CONFIG).exists():
        names -= {_MEDUSA}  # Medusa's own file, in a head that is trained further
    if not folder.is_dir() or names - _OWN_FILES:
        raise InvalidOption(f"{folder} has other things than a head in it; choose another place.")


def _put_back(old: Path, folder: Path) -> None:
    """Restore the old head if a write was interrupted between its two renames."""
    if old.exists() and not folder.exists():
        old.rename(folder)
