"""Texts that are kept for a later call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra forerun[train]")

from forerun.errors import InvalidOption
from forerun.training.text_file import load_texts, save_texts
from forerun.training.texts import Text

TEXTS = [Text([5, 70_000, 3], 1), Text([2], 0), Text([9, 9, 8, 7], 3)]


def test_texts_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "texts.npz"
    save_texts(path, TEXTS)
    assert load_texts(path, 70_001) == TEXTS
    with pytest.raises(InvalidOption, match="holds no texts of this target"):
        load_texts(path, 70_000)


@pytest.mark.parametrize("harm", ["empty", "cut", "lengths", "missing"])
def test_what_is_no_such_file_is_refused(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "texts.npz"
    save_texts(path, TEXTS)
    if harm == "empty":
        path.write_bytes(b"")
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:200])
    elif harm == "lengths":
        np.savez(path, tokens=np.arange(5), lengths=np.array([3]), answers=np.array([1]))
    else:
        path.unlink()
    with pytest.raises(InvalidOption, match="write them again"):
        load_texts(path, 100_000)
