"""A GGUF file as a checkpoint: Hugging Face names, half-split rows, weights mapped from disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidWeights
from forerun.models.gguf.config import read_gguf_config
from forerun.models.gguf.header import read_gguf_header
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.dequantize import dequantize
from forerun.models.weights.layout import check_config, check_tensors
from forerun.models.weights.mapped_file import map_file

_WHOLE: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_PER_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_INTERLEAVED: Final = re.compile(r"self_attn\.([qk])_proj\.(weight|bias)$")


class GgufCheckpoint:
    """Implements `Checkpoint` for one GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = map_file(path)
        header = read_gguf_header(self._data, path)
        self._metadata = header.metadata
        self._entries = {_hf_name(name): entry for name, entry in header.tensors.items()}
        self.config = read_gguf_config(header, path)
        shapes = {name: entry.shape for name, entry in self._entries.items()}
        check_config(self.config, path)
        check_tensors(self.config, shapes, path)

    def names(self) -> Iterator[str]:
        return iter(self._entries)

    def has(self, name: str) -> bool:
        return name in self._entries

    def tensor(self, name: str) -> Tensor:
        if name not in self._entries:
            raise InvalidWeights(f"{self.path} has no tensor {name!r}; check the model's family.")
        entry = self._entries[name]
        row_bytes = entry.format.row_bytes(entry.shape[-1])
        data = self._data[entry.start : entry.start + entry.num_bytes].reshape(-1, row_bytes)
        match = _INTERLEAVED.search(name)
        if match and self.config.architecture == "llama":
            is_query = match[1] == "q"
            num_heads = self.config.num_heads if is_query else self.config.num_kv_heads
            data = _half_split(data, entry.shape[0], num_heads)
        return Tensor(name, entry.shape, entry.format.name, data)

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self.tensor(name)
        return dequantize(tensor.data, tensor.format).reshape(tensor.shape)

    def metadata(self) -> dict[str, Any]:
        return dict(self._metadata)


def _hf_name(name: str) -> str:
    """Return Hugging Face's name of a GGUF tensor; unknown names stay, for `check_tensors`."""
    match = _LAYER_NAME.fullmatch(name)
    if match and match[2] in _PER_LAYER:
        return f"model.layers.{int(match[1])}.{_PER_LAYER[match[2]]}.{match[3]}"
    stem, _, kind = name.rpartition(".")
    return f"{_WHOLE[stem]}.{kind}" if stem in _WHOLE else name


def _half_split(
    data: npt.NDArray[np.uint8], num_rows: int, num_heads: int
) -> npt.NDArray[np.uint8]:
    """Reorder rows from interleaved pairs (0, h, 1, h+1, …) to halves (0, 1, …, h, h+1, …).

    Rows move as raw blocks. In a bias each element is a row.
    """
    rows = data.reshape(num_rows, -1)
    order = np.arange(num_rows).reshape(num_heads, -1, 2).swapaxes(1, 2).reshape(-1)
    return np.ascontiguousarray(rows[order]).reshape(data.shape)
