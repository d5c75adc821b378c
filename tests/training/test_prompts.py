"""Questions to train on: each kind fills its forms from whatever sources there are."""

from __future__ import annotations

import re
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tools.prompts.kinds import Questions
from tools.prompts.sources import Article, Sources

WORDS = [f"word{idx}" for idx in range(40)]


@pytest.fixture
def sources() -> Any:
    article = Article("The Title (book)", [" ".join(WORDS)] * 6)
    kinds = ["04", "05", "06", "07", "09", "10", "13", "15", "18", "20", "26", "27"]
    return SimpleNamespace(
        encyclopedia=[article] * 2,
        news=[article],
        speeches=[Article("", [])],  # a page without text
        handbook=[article],
        german=["Das ist ein Satz."],
        names=["Ada", "Ben"],
        nouns={kind: ["thing", "Name"] for kind in kinds},
    )


@pytest.mark.parametrize(
    "kind", ["chat", "translation", "summarization", "qa", "maths", "rag", "code"]
)
def test_forms_are_filled(sources: Any, kind: str) -> None:
    make = Questions(sources, Random(0)).kinds[kind]
    found = [make() for _ in range(300)]
    assert all(turn.strip() for turns in found for turn in turns)
    assert not [turn for turns in found for turn in turns if re.search(r"\{\w*\}", turn)]
    assert len({turns[0] for turns in found}) > 20
    assert {len(turns) for turns in found} == ({1, 2} if kind == "chat" else {1})
    assert found[:5] == [again() for again in [Questions(sources, Random(0)).kinds[kind]] * 5]


def test_missing_packages_are_named(tmp_path: Any) -> None:
    with pytest.raises(SystemExit, match="fetch its packages again"):
        assert Sources(tmp_path).news
