"""The table that compares all kinds of heads: the same texts, one record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from forerun.bench.records.record import Record
from forerun.bench.records.report import read_any
from tests.tiny_model import write_tiny_model

torch = pytest.importorskip("torch", reason="training needs the extra forerun[train]")

from tools.heads_table import main  # noqa: E402

SMALL = '{"tokens": 500, "num_places": 2, "batch_len": 2, "num_written": 32, "device": "cpu"}'


@pytest.mark.parametrize("how", [[], ["--side-by-side"]])
def test_every_kind_stands_in_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: list[str]
) -> None:
    model = write_tiny_model(tmp_path / "target", sharpness=4.0, num_layers=2)
    rng = np.random.default_rng(0)
    lengths = np.full(160, 40)
    answers = rng.integers(4, 12, 160)
    tokens = rng.integers(0, 30, lengths.sum()).astype(np.uint16)
    np.savez(tmp_path / "texts.npz", tokens=tokens, lengths=lengths, answers=answers)
    places = ["--out", str(tmp_path / "heads"), "--record", str(tmp_path / "record.json")]
    given = ["--model", str(model), "--texts", str(tmp_path / "texts.npz"), "--max-len", "48"]
    asked = ["--kinds", "blockwise,mtp", "--seconds", "600", "--more", SMALL, "--commit", "abc"]
    assert main([*given, *asked, *places, *how]) == 0
    printed = capsys.readouterr().out
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["commit"] == "abc"
    assert record["is_complete"]
    assert not isinstance(read_any(tmp_path / "record.json"), Record)
    assert record["settings"]["num_tokens"] == 6400
    for kind in ("blockwise", "mtp"):
        found = record["kinds"][kind]
        assert len(found["alpha"]) == 2
        assert found["tokens"] >= 500
        assert any(line.split()[:1] == [kind] for line in printed.splitlines())
    assert (tmp_path / "heads" / "mtp" / "model.safetensors").is_file()
    failed = ["--kinds", "pass", "--more", '{"draft_vocab_size": 9}']
    assert main([*given, *failed, *places, *how]) == 1
    assert "guesses all ids" in (tmp_path / "record.json").read_text()
