"""Medusa heads in other engines' layouts, which read the output of the target's last norm.

    config      Medusa (medusa_model.py)    medusa_num_heads, medusa_num_layers
                vLLM (configs/medusa.py)    num_heads, num_hidden_layers, vocab_size …
    head i      Medusa                      i.0.linear.weight, i.0.linear.bias, i.1.weight
                vLLM (models/medusa.py)     blocks.i.layers.0.weight, …bias, lm_heads.i.weight

vLLM reads either config and removes the prefix `medusa_heads.` from names. It may have one matrix
for all heads (`original_lm_head`) and, in `token_map`, the ids of the draft vocabulary. Version 2
of Hugging Face's text-generation-inference has no matrices: its heads end in the target's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from forerun.drafters.heads.config import ADVICE, HeadConfig
from forerun.errors import InvalidWeights, UnsupportedModel
from forerun.models.fields import Fields
from forerun.models.hf.safetensors_file import SafetensorsFile

TOKEN_MAP: Final = "token_map"
_PREFIX: Final = "medusa_heads."
_LINEAR, _MATRIX = "0.0.linear.weight", "0.1.weight"
_PATTERNS: Final = (  # vLLM's names, and ours for them
    (re.compile(r"blocks\.(\d+)\.layers\.0\.(weight|bias)"), r"\1.0.linear.\2"),
    (re.compile(r"lm_heads\.(\d+)\.weight"), r"\1.1.weight"),
    (re.compile(r"lm_head\.weight"), "0.1.weight"),
    (re.compile(TOKEN_MAP), "d2t"),
)


def read_medusa(
    values: Mapping[str, Any], path: Path, file: SafetensorsFile
) -> tuple[HeadConfig, dict[str, str]]:
    """Return the config as ours, and the file's name of each of our weights.

    Sizes that the config does not say are taken from the weights."""
    fields = Fields(values, path, advice=ADVICE)
    prefix = "medusa_" if fields.get("medusa_num_heads") is not None else ""
    heads, blocks = f"{prefix}num_heads", f"{prefix}num_{'' if prefix else 'hidden_'}layers"
    num_heads = fields.size(heads)
    if fields.size(blocks, 1) != 1 or fields.positive("logit_scale", 1) != 1:
        raise UnsupportedModel(
            f"{path}: {blocks!r} and 'logit_scale' must be 1; use heads of one residual block each."
        )
    names = {_our_name(name.replace(_PREFIX, "")): name for name in file.names()}
    num_found = sum(name.endswith(".0.linear.weight") for name in names)
    if num_found != num_heads or _LINEAR not in names:
        raise InvalidWeights(
            f"{path}: {heads!r} is {num_heads}, and {file.path.name} has {num_found} residual "
            "blocks; write in how many heads there are, or get the file anew."
        )
    if fields.get("version") not in ("2", 2) and _MATRIX not in names:
        raise InvalidWeights(
            f"{path}: {file.path.name} has no matrix of head 0, and 'version' is not 2, which "
            "does without; get the head anew."
        )
    if fields.flag("original_lm_head", False) and _MATRIX in names:
        names |= {f"{idx}.1.weight": names[_MATRIX] for idx in range(num_heads)}
    width = math.prod(file.shape(names[_LINEAR])[-1:])
    rows = math.prod(file.shape(names[_MATRIX])[:1]) if _MATRIX in names else 0
    is_known = bool(rows) or fields.get("vocab_size") is not None  # if not, it is the target's
    vocab_size = fields.size("vocab_size", rows) if is_known else 0
    return HeadConfig(
        kind="medusa",
        layers=(),  # the target's last one
        target_hidden_size=fields.size("hidden_size", width),
        target_vocab_size=vocab_size,
        target_num_layers=0,
        tokenizer_hash="",
        draft_vocab_size=fields.size("truncated_vocab_size", rows) if rows else vocab_size,
        num_guesses=num_heads,
    ), names


def _our_name(name: str) -> str:
    for pattern, ours in _PATTERNS:
        if pattern.fullmatch(name):
            return pattern.sub(ours, name)
    return name
