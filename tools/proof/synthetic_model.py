"""Make a model of a known shape with random weights, as a folder for `forerun proof`:

    python -m tools.proof.synthetic_model llama-3.2-1b build/synthetic-1b

It has SmolLM2's tokenizer. Its output depends on all of the text and is often near a tie, so that
a differing bit soon gives another token. Later layers add less and less, so that the model's own
first layers guess right now and then.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file

from forerun.models.known_shapes import read_shape
from forerun.models.llama import EMBEDDING
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.weights.layout import required_shapes

_TOKENIZER_OF: Final = "smollm2-135m"
_ADDED: Final = ("o_proj.weight", "down_proj.weight")
_LOGIT_SPREAD: Final = 3.0  # standard deviation of logits
_DECAY: Final = 0.8  # of what layers add, from one to the next


def main(shape: str, folder: Path) -> None:
    config = read_shape(shape)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(1)
    weights = {}
    for name, size in dict(required_shapes(config)).items():
        scale = _scale(name, size, config.hidden_size)
        drawn = torch.randn(size, generator=generator, device=device) if scale else torch.ones(size)
        weights[name] = (drawn * (scale or 1)).to(torch.bfloat16).cpu().contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    tokenizer = load_tokenizer(open_checkpoint(_TOKENIZER_OF))
    for name, content in tokenizer.files().items():
        (folder / name).write_bytes(content)
    described = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "tie_word_embeddings": config.tie_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "max_position_embeddings": config.max_len,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(described, indent=2))


def _scale(name: str, size: tuple[int, ...], hidden_size: int) -> float:
    """Of a tensor's random numbers; 0: all are 1."""
    if len(size) == 1:
        return 0.0
    if name == EMBEDDING:
        return _LOGIT_SPREAD / math.sqrt(hidden_size)
    usual = 1 / math.sqrt(size[-1])
    return usual * _DECAY ** int(name.split(".")[2]) if name.endswith(_ADDED) else usual


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
