"""llama2.c files become Hugging Face directories."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.errors import InvalidWeights
from forerun.models.config import ModelConfig
from forerun.models.download.llama2c import convert_llama2c
from forerun.models.opening import load_tokenizer, open_checkpoint
from tests.models.tiny_files import LLAMA, Arrays, interleaved, random_arrays

PIECES = [
    "<unk>",
    "\n<s>\n",
    "\n</s>\n",
    *(f"<0x{b:02X}>" for b in range(256)),
    " ",
    "a",
    "b",
    "ab",
]
CONFIG = replace(LLAMA, vocab_size=len(PIECES))
ORDER = [
    "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.o_proj", "post_attention_layernorm", "mlp.gate_proj", "mlp.down_proj",
    "mlp.up_proj",
]  # fmt: skip


def _llama2c(config: ModelConfig, arrays: Arrays) -> bytes:
    """The file as the project's own export writes it."""
    vocab = config.vocab_size if config.tie_embeddings else -config.vocab_size
    sizes = (config.hidden_size, config.intermediate_size, config.num_layers, config.num_heads)
    blocks = [struct.pack("<7i", *sizes, config.num_kv_heads, vocab, config.max_len)]
    blocks.append(arrays["model.embed_tokens.weight"].tobytes())
    for name in ORDER:
        for layer in range(config.num_layers):
            array = arrays[f"model.layers.{layer}.{name}.weight"]
            if name.endswith(("q_proj", "k_proj")):
                array = interleaved(array, array.shape[0] // config.head_dim)
            blocks.append(array.tobytes())
    blocks.append(arrays["model.norm.weight"].tobytes())
    blocks.append(bytes(4 * config.max_len * config.head_dim))
    if not config.tie_embeddings:
        blocks.append(arrays["lm_head.weight"].tobytes())
    blocks.append(struct.pack("<i", 8))
    for score, piece in enumerate(PIECES):
        blocks.append(struct.pack("<fi", -score, len(piece)) + piece.encode())
    return b"".join(blocks)


@pytest.mark.parametrize("tied", [True, False])
def test_weights_and_tokenizer_come_back(tmp_path: Path, tied: bool) -> None:
    config = replace(CONFIG, tie_embeddings=tied)
    arrays = random_arrays(config)
    (tmp_path / "m.bin").write_bytes(_llama2c(config, arrays))
    folder = tmp_path / "m"
    folder.mkdir()
    convert_llama2c(tmp_path / "m.bin", folder)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config == config
    for name, array in arrays.items():
        assert np.array_equal(checkpoint.float32(name), array), name
    tokenizer = load_tokenizer(checkpoint)
    assert [tokenizer.token(i) for i in tokenizer.encode("ab")] == ["<s>", "▁", "ab"]
    assert tokenizer.decode(tokenizer.encode("ab é")) == "ab é"
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, (2,))


@pytest.mark.parametrize("kept", [10, 1000, -5])
def test_truncated_files_are_refused(tmp_path: Path, kept: int) -> None:
    (tmp_path / "m.bin").write_bytes(_llama2c(CONFIG, random_arrays(CONFIG))[:kept])
    with pytest.raises(InvalidWeights, match=r"m\.bin"):
        convert_llama2c(tmp_path / "m.bin", tmp_path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"\xff" * 100)
    with pytest.raises(InvalidWeights, match=r"llama2\.c model file"):
        convert_llama2c(tmp_path / "m.bin", tmp_path)
