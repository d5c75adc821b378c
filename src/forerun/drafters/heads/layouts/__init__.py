"""Heads in other engines' layouts: EAGLE-3 of vLLM's speculators, EAGLE, SGLang and SpecForge, and
Medusa of its own repository and of vLLM. None of them names the target's number of layers or its
tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.drafters.heads.layouts.eagle3 import (
    LAYOUTS,
    T2D,
    eagle3_names,
    read_eagle3,
    written_config,
    written_weights,
)
from forerun.drafters.heads.layouts.layer_ids import check_usual
from forerun.drafters.heads.layouts.medusa import TOKEN_MAP, read_medusa

__all__ = [
    "LAYOUTS",
    "T2D",
    "TOKEN_MAP",
    "check_usual",
    "eagle3_names",
    "layout_of",
    "read_eagle3",
    "read_medusa",
    "written_config",
    "written_weights",
]


def layout_of(values: Mapping[str, Any]) -> str | None:
    """Return the layout of a config; None if it is none of these."""
    if values.get("speculators_model_type") == "eagle3":
        return "speculators"
    named = values.get("architectures")
    architectures = named if isinstance(named, list) else []
    if "LlamaForCausalLMEagle3" in architectures:
        return "eagle"
    is_medusa = values.get("model_type") == "medusa" or "MedusaModel" in architectures
    return "medusa" if is_medusa or "medusa_num_heads" in values else None
