"""Heads of the package, found by their target."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np

import forerun.drafters.heads as heads
import forerun.drafters.phrases as phrases
from forerun.drafters.heads import (
    HeadFolder,
    model_fingerprint,
    shipped_heads,
)
from tests.drafters.heads.random_heads import medusa_config, write_medusa
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint

WEIGHTS = Path(heads.__file__).with_name("weights")


def test_the_heads_of_the_package_are_whole() -> None:
    """Each loads, names its target, and says where it comes from."""
    for name, kind in {"smollm2-135m-block": "block"}.items():
        fingerprint = json.loads((WEIGHTS / name / "config.json").read_text())["target_fingerprint"]
        assert WEIGHTS / name in shipped_heads(fingerprint)
        folder = HeadFolder(WEIGHTS / name, kind)
        assert folder.num_weights > 10_000_000
        assert np.isfinite(folder.float32("fc.weight")).all()
        assert (folder.path / "README.md").is_file()


def test_what_the_package_has_for_a_model_is_no_burden() -> None:
    sizes = Counter[str]()
    for folder in (WEIGHTS, Path(phrases.__file__).with_name("weights")):
        for path in folder.glob("*/*"):
            sizes[path.parent.name.removesuffix("-block")] += path.stat().st_size
    assert set(sizes) == {"smollm2-135m", "qwen2.5-coder-1.5b"}
    assert max(sizes.values()) < 25_000_000
    assert sizes.total() < 27_000_000


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
