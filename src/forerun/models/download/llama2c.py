"""Converts models of the llama2.c project to a Hugging Face directory.

The file has the weights and, right after them, the tokenizer:

    7 int32: width, inner width, layers, heads, key/value heads, ±vocabulary, context
    float32 embeddings, then for all layers each: attention norms, q, k, v, o, MLP norms,
        gate, down, up; the last norm; two rope tables (unused); the head, if vocabulary < 0
    int32: longest piece | per token: float32 score, int32 length, bytes

q and k rows are interleaved rotary pairs in the file, and half-split in the directory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from forerun.errors import InvalidWeights
from forerun.models.config import ModelConfig
from forerun.models.gguf.tokenizer import tokenizer_from_gguf
from forerun.models.weights.mapped_file import map_file

Floats = npt.NDArray[np.float32]

_HEADER: Final = struct.Struct("<7i")
_MAX_SIZE: Final = 1 << 20
_UNKNOWN, _BOS, _EOS = 0, 1, 2
_FIRST_BYTE: Final = 3  # ids 3 … 258 are the 256 bytes


def convert_llama2c(source: Path, folder: Path) -> None:
    """Write config.json, model.safetensors and tokenizer.json for `source` into `folder`."""
    data = map_file(source)
    shape = _read_shape(data, source)
    tensors, end = _read_tensors(data, shape, source)
    pieces, scores = _read_pieces(data[end:].tobytes(), shape.vocab_size, source)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", _config(shape))
    _write_json(folder / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>"})
    tokenizer = tokenizer_from_gguf(_tokenizer_metadata(pieces, scores))
    tokenizer.save(folder / "tokenizer.json")


def _read_shape(data: npt.NDArray[np.uint8], source: Path) -> ModelConfig:
    if data.size < _HEADER.size:
        raise InvalidWeights(f"{source} is too short for a llama2.c header; download it again.")
    values = _HEADER.unpack(data[: _HEADER.size].tobytes())
    hidden, inner, num_layers, num_heads, num_kv_heads, signed_vocab, max_len = values
    sizes = [*values[:5], abs(signed_vocab), max_len]
    if not all(1 <= size <= _MAX_SIZE for size in sizes) or hidden % num_heads:
        raise InvalidWeights(f"{source} has the header {values}; give a llama2.c model file.")
    return ModelConfig(
        architecture="llama",
        vocab_size=abs(signed_vocab),
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=hidden // num_heads,
        max_len=max_len,
        tie_embeddings=signed_vocab > 0,
    )


def _read_tensors(
    data: npt.NDArray[np.uint8], shape: ModelConfig, source: Path
) -> tuple[dict[str, Floats], int]:
    """Return all weights by their Hugging Face names, and the offset of the tokenizer."""
    tensors, at = {}, _HEADER.size
    for name, dims in _blocks(shape):
        num_bytes = 4 * int(np.prod(dims))
        if at + num_bytes > data.size:
            raise InvalidWeights(f"{source} ends inside {name or 'the rope tables'}; get it again.")
        block = data[at : at + num_bytes].view(np.float32).reshape(dims)
        at += num_bytes
        tensors.update(_named(name, block, shape))
    return tensors, at


def _blocks(shape: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the file's arrays in order; a name with {} is stacked over layers, "" is skipped."""
    hidden, inner, layers = shape.hidden_size, shape.intermediate_size, shape.num_layers
    kv_len = shape.num_kv_heads * shape.head_dim
    layer = "model.layers.{}."
    yield "model.embed_tokens.weight", (shape.vocab_size, hidden)
    yield layer + "input_layernorm.weight", (layers, hidden)
    yield layer + "self_attn.q_proj.weight", (layers, hidden, hidden)
    yield layer + "self_attn.k_proj.weight", (layers, kv_len, hidden)
    yield layer + "self_attn.v_proj.weight", (layers, kv_len, hidden)
    yield layer + "self_attn.o_proj.weight", (layers, hidden, hidden)
    yield layer + "post_attention_layernorm.weight", (layers, hidden)
    yield layer + "mlp.gate_proj.weight", (layers, inner, hidden)
    yield layer + "mlp.down_proj.weight", (layers, hidden, inner)
    yield layer + "mlp.up_proj.weight", (layers, inner, hidden)
    yield "model.norm.weight", (hidden,)
    yield "", (2, shape.max_len, shape.head_dim // 2)
    if not shape.tie_embeddings:
        yield "lm_head.weight", (shape.vocab_size, hidden)


def _named(name: str, block: Floats, shape: ModelConfig) -> dict[str, Floats]:
    if not name:
        return {}
    if "{}" not in name:
        return {name: np.ascontiguousarray(block)}
    heads = {"q_proj": shape.num_heads, "k_proj": shape.num_kv_heads}
    num_heads = next((count for part, count in heads.items() if part in name), None)
    return {
        name.format(i): matrix if num_heads is None else _half_split(matrix, num_heads)
        for i, matrix in enumerate(np.ascontiguousarray(block))
    }


def _half_split(matrix: Floats, num_heads: int) -> Floats:
    """Reorder rows from interleaved rotary pairs to halves, head by head."""
    pairs = matrix.reshape(num_heads, -1, 2, matrix.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(matrix.shape)


def _read_pieces(data: bytes, count: int, source: Path) -> tuple[list[str], list[float]]:
    """Read token strings and scores as llama2.c stores them."""
    pieces, scores, at = [], [], 4
    for token_id in range(count):
        if at + 8 > len(data):
            raise InvalidWeights(
                f"{source} ends at token {token_id} of {count}; download it again."
            )
        score, num_bytes = struct.unpack_from("<fi", data, at)
        piece = data[at + 8 : at + 8 + max(num_bytes, 0)]
        pieces.append(_spelling(token_id, piece.decode("utf-8", "replace")))
        scores.append(score)
        at += 8 + len(piece)
    return pieces, scores


def _spelling(token_id: int, piece: str) -> str:
    """Return SentencePiece's spelling of a token, which llama2.c's export has undone."""
    fixed = {_UNKNOWN: "<unk>", _BOS: "<s>", _EOS: "</s>"}
    if token_id in fixed:
        return fixed[token_id]
    if _FIRST_BYTE <= token_id < _FIRST_BYTE + 256:
        return f"<0x{token_id - _FIRST_BYTE:02X}>"
    return piece.replace(" ", "▁")


def _tokenizer_metadata(pieces: list[str], scores: list[float]) -> dict[str, Any]:
    kinds = np.ones(len(pieces), np.int32)
    kinds[[_UNKNOWN, _BOS, _EOS]] = (2, 3, 3)
    kinds[_FIRST_BYTE : _FIRST_BYTE + 256] = 6
    fields = {
        "model": "llama",
        "tokens": pieces,
        "scores": np.array(scores, np.float32),
        "token_type": kinds,
        "unknown_token_id": _UNKNOWN,
        "bos_token_id": _BOS,
        "eos_token_id": _EOS,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


def _config(shape: ModelConfig) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "max_position_embeddings": shape.max_len,
        "rms_norm_eps": shape.rms_norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tie_embeddings,
        "bos_token_id": _BOS,
        "eos_token_id": _EOS,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
