"""Heads of the package, found by their target."""

from __future__ import annotations

from pathlib import Path

from forerun.drafters.heads import model_fingerprint, shipped_heads
from tests.drafters.random_heads import medusa_config, write_medusa
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint


def test_a_head_is_found_by_the_weights_of_its_target(tmp_path: Path) -> None:
    checkpoint, other = (TinyCheckpoint(FAMILIES["smollm2"], seed) for seed in (0, 1))
    fingerprint = model_fingerprint(checkpoint)
    assert fingerprint == model_fingerprint(TinyCheckpoint(FAMILIES["smollm2"]))
    for name, config in {
        "b": medusa_config(checkpoint.config, target_fingerprint=fingerprint),
        "a": medusa_config(checkpoint.config, target_fingerprint=fingerprint),
        "c": medusa_config(checkpoint.config),
    }.items():
        write_medusa(tmp_path / name, config)
    assert shipped_heads(fingerprint, tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert shipped_heads(model_fingerprint(other), tmp_path) == []
    assert shipped_heads(fingerprint, tmp_path / "nowhere") == []
