"""Tables of what followed in texts that the target wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.drafters import Budget
from forerun.drafters.heads import HeadFolder, Ngrams, load_tables, save_head
from forerun.drafters.heads.folder import TABLE
from forerun.drafters.heads.ngrams import ORDERS, Tables, counted
from forerun.engine import LLM
from forerun.errors import InvalidOption, InvalidWeights
from forerun.models.text.compatibility import tokenizer_hash
from tests.contracts.test_drafters import View
from tests.drafters.random_heads import eagle3_config
from tests.engine.test_bits import PROMPTS, params, tokens
from tests.models_llama.tiny import tiny_config

TEXTS = [np.array(text) for text in ([1, 2, 3, 4, 5, 6], [9, 2, 3, 4, 8, 8], [7, 2, 3, 4, 8, 1])]


def guessed(drafter: Ngrams, prompt: tuple[int, ...], **budget: Any) -> list[int]:
    view = View(prompt)
    drafter.begin(view)
    (proposal,) = drafter.propose([view], [Budget(**{"depth": 4, **budget})])
    drafter.end(view)
    return list(proposal.tokens)


def test_the_longest_known_context_decides() -> None:
    drafter = Ngrams(counted(TEXTS))
    assert guessed(drafter, (2, 3, 4), depth=1) == [8]  # twice, and 5 once
    assert guessed(drafter, (5, 2), depth=2) == [3, 4]
    assert guessed(drafter, (50,)) == []
    assert guessed(drafter, (2, 3, 4, 5, 0, 2, 3, 4), depth=1) == [5]  # its own text comes first


def test_guesses_end_where_they_bring_less_than_they_cost() -> None:
    drafter = Ngrams(counted(TEXTS))
    assert guessed(drafter, (5, 2)) == [3, 4, 8]  # and 8 or 1, with a chance below all use
    assert guessed(drafter, (5, 2), least_chance=0.6) == [3]
    assert guessed(drafter, (5, 2), least_chance=0.9) == []


def write(folder: Path, config: Any, tables: Tables) -> Path:
    weights = {f"{TABLE}{n}": t.view(np.uint8).reshape(len(t), -1) for n, t in tables.items()}
    save_head(folder, config, weights)
    return folder


def test_tables_come_back_and_damaged_ones_do_not(tmp_path: Path) -> None:
    config, tables = eagle3_config(tiny_config(), kind="ngrams"), counted(TEXTS)
    folder = HeadFolder(write(tmp_path / "head", config, tables), "ngrams")
    found = load_tables(folder)
    assert all((found[order] == tables[order]).all() for order in ORDERS)
    assert folder.num_weights == 0  # nothing is read whole
    turned = {**tables, 2: tables[2][::-1].copy()}
    with pytest.raises(InvalidWeights, match="the table of order 2 is damaged"):
        load_tables(HeadFolder(write(tmp_path / "turned", config, turned)))
    missing = {order: table for order, table in tables.items() if order != 3}
    with pytest.raises(InvalidWeights, match=r"table 'ngrams.3' is missing"):
        load_tables(HeadFolder(write(tmp_path / "missing", config, missing)))


def test_they_change_no_token(plain: LLM, tmp_path: Path) -> None:
    ours = tokenizer_hash(plain.tokenizer)
    answers = [tokens(plain, prompt, params("greedy")) for prompt in PROMPTS]
    tables = counted([np.array(answer) for answer in answers] * 2)
    config = eagle3_config(plain.model.config, ours, kind="ngrams")
    folder = write(tmp_path / "head", config, tables)
    asked = {"method": "ngrams", "model": str(folder), "adaptive": False}
    llm = plain.with_speculation(asked)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        output = llm.generate(prompt, params("greedy"))[0].outputs[0]
        assert list(output.token_ids) == list(answer)
        assert output.stats["accepted_tokens"] > 0
    other = eagle3_config(plain.model.config, "another", kind="ngrams")
    asked["model"] = str(write(tmp_path / "other", other, tables))
    with pytest.raises(InvalidOption, match="was trained for another target"):
        plain.with_speculation(asked)
