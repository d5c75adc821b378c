"""Golden files: small random models of every family, with the logits of the transformers library.

    python tools/oracle/families.py write tests/golden/families     make the golden files
    python tools/oracle/families.py compare tests/golden/families   check them against transformers

Each folder is an ordinary Hugging Face directory plus `parity.npz`: tokens [T], logits [T, V].
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

SHAPE: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# Contexts are short, so frequency scaling and windows are set to take effect within 48 tokens.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama2": {"model_type": "llama", "num_key_value_heads": 4},
    "llama3.1": {"model_type": "llama", "rope_parameters": LLAMA3},
    "llama3.2": {"model_type": "llama", "rope_parameters": LLAMA3, "tie_word_embeddings": True},
    "linear-rope": {
        "model_type": "llama",
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    },
    "smollm2": {
        "model_type": "llama",
        "hidden_size": 36,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    },
    "qwen2": {"model_type": "qwen2", "use_sliding_window": False, "rms_norm_eps": 1e-6},
    "qwen3": {"model_type": "qwen3", "head_dim": 12, "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "sliding_window": 8, "head_dim": 8},
}
NUM_TOKENS = 48
BF16 = ("llama3.2", "qwen2")  # stored in bfloat16; the arithmetic is float32 everywhere
TOLERANCE = 1e-5


def build(name: str) -> Any:
    """Build a model with weights from numpy, which no version of torch changes."""
    options = {**SHAPE, **FAMILIES[name]}
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    rng = np.random.default_rng(sorted(FAMILIES).index(name))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(draw(rng, key, tuple(parameter.shape))))
            if name in BF16:
                parameter.copy_(parameter.bfloat16().float())
    return model.float().eval()


def draw(rng: np.random.Generator, key: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw weights: norms around one, others so large that every option affects the logits."""
    if "norm" in key:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return (rng.standard_normal(shape) * (1.5 / np.sqrt(shape[-1]))).astype(np.float32)


def logits_of(model: Any, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(tokens)[None]).logits[0].numpy()  # [T, V]


def save(name: str, model: Any, folder: Path) -> None:
    dtype = torch.bfloat16 if name in BF16 else torch.float32
    folder.mkdir(parents=True, exist_ok=True)
    tokens = np.random.default_rng(1).integers(0, SHAPE["vocab_size"], NUM_TOKENS)
    np.savez(folder / "parity.npz", tokens=tokens, logits=logits_of(model, tokens))
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = folder / "config.json"
    values = json.loads(config.read_text())
    values.pop("transformers_version", None)  # keeps diffs to what matters
    config.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")


def compare(name: str, folder: Path) -> None:
    """Check that transformers still computes the golden logits from the golden weights."""
    golden = np.load(folder / "parity.npz")
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    error = float(np.abs(logits_of(model, golden["tokens"]) - golden["logits"]).max())
    print(f"{name:12} golden files against transformers: {error:.1e}")
    if not error <= TOLERANCE:
        raise SystemExit(f"{folder} differs from transformers by {error}; run `write` and look.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    for name in FAMILIES:
        if args.action == "write":
            save(name, build(name), args.folder / name)
        compare(name, args.folder / name)


if __name__ == "__main__":
    main()
