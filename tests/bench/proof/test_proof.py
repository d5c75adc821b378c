"""The proof: what it runs, what it finds, and that stopping it loses nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from forerun.bench.prompts.named_prompts import NamedPrompt, named_prompts
from forerun.bench.proof.proof import SAMPLING, Cell, Method, Proof, as_json, proof_methods
from forerun.bench.proof.sample import BRANCHES, Choices, sample_runs
from forerun.cli.proof import Report, conclude
from forerun.cli.terminal.progress import Lines
from forerun.drafters.heads.folder import HISTORY
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.models.text.compatibility import tokenizer_hash
from tests.drafters.heads.random_heads import block_config, write_block

CHOICES = Choices(
    [f"p{n}" for n in range(24)], ["auto", "random", "merge"], list(SAMPLING), max_depth=6
)


def test_every_pair_of_choices_and_every_prompt_with_every_drafter() -> None:
    runs = sample_runs(CHOICES, seed=3)
    levels = {
        "method": CHOICES.methods,
        "num_branches": BRANCHES,
        "sampling": CHOICES.samplings,
        "depth": CHOICES.depths,
    }
    for a, b in itertools.combinations(levels, 2):
        met = {(getattr(run, a), getattr(run, b)) for run in runs}
        assert met == set(itertools.product(levels[a], levels[b]))
    met = {(run.prompt, run.method) for run in runs}
    assert met == set(itertools.product(CHOICES.prompts, CHOICES.methods))
    assert len(runs) == len(CHOICES.prompts) * len(CHOICES.methods)


def test_a_prompt_has_two_sampling_settings_and_two_prompts_have_all() -> None:
    runs = sample_runs(CHOICES, seed=3, min_runs=200)
    assert len(runs) == 200
    for prompt in CHOICES.prompts:
        assert len({run.sampling for run in runs if run.prompt == prompt}) <= 2
    first, second = (CHOICES.samplings_of(prompt) for prompt in CHOICES.prompts[:2])
    assert {*first, *second} == set(SAMPLING)
    alone = Choices(["only"], ["auto"], list(SAMPLING), 2)
    assert {run.sampling for run in sample_runs(alone, seed=0)} == set(SAMPLING)


def test_shallow_depths_are_drawn_more_often() -> None:
    runs = sample_runs(CHOICES, seed=3, min_runs=2000)
    num_shallow = sum(run.depth == 1 for run in runs)
    assert num_shallow > 2 * sum(run.depth == 6 for run in runs)


@pytest.fixture(scope="module", autouse=True)
def small_vocabulary() -> Iterator[None]:
    """The biased tokens of the real settings are not in the tiny model's vocabulary."""
    with pytest.MonkeyPatch.context() as patch:
        for options in SAMPLING.values():
            if "logit_bias" in options:
                patch.setitem(options, "logit_bias", {3: 1.0, 5: -1.0})
        yield


@pytest.fixture(scope="module")
def cells(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    llm = LLM(tiny_path, max_num_seqs=8, speculative_config=None, max_model_len=200, num_threads=1)
    config = block_config(llm.model.config, tokenizer_hash(llm.tokenizer))
    head = write_block(tmp_path_factory.mktemp("heads") / "mine", config)
    methods = proof_methods(str(tiny_path), num_layers=1, heads=[head])
    light = {name: methods[name] for name in ("suffix", "draft_model", "merge", "block (mine)")}
    return list(Proof(llm, _short(6), light, max_depth=4, num_tokens=12, seed=1).run())


def _short(num: int) -> list[NamedPrompt]:
    """The tiny model knows small letters only."""
    texts = ["one two one two", "a cat and a dog", "sing la la la", "so it goes", "yes", "no no no"]
    first = named_prompts(1)[0]
    return [replace(first, name=f"p{n}", text=texts[n]) for n in range(num)]


def test_no_token_differs_and_requests_keep_to_their_own_depth(cells: list[Cell]) -> None:
    assert len(cells) >= 18
    assert [cell for cell in cells if cell.first_difference is not None] == []
    assert sum(cell.accepted_tokens for cell in cells) > 0
    for cell in cells:
        trees = 2 if cell.method == "merge" else 1
        widest = cell.target_passes * cell.depth * cell.num_branches * trees
        assert cell.draft_tokens <= widest


def test_a_difference_is_found(tiny_path: Path) -> None:
    """Plant one: plain decoding that said something else."""
    llm = LLM(tiny_path, max_num_seqs=8, speculative_config=None, max_model_len=200, num_threads=1)
    proof = Proof(llm, _short(2), {"auto": Method({})}, max_depth=2, num_tokens=12, seed=1)
    proof._expected = {(run.prompt, run.sampling): (0,) * 12 for run in proof.runs}
    assert any(cell.first_difference is not None for cell in proof.run())


def test_a_record_has_a_line_for_each_cell(cells: list[Cell]) -> None:
    text = as_json({"is_complete": False}, cells)
    record = json.loads(text)
    assert record["num_cells"] == len(record["cells"]) == len(cells)
    assert record["num_different"] == 0
    assert sum('"method"' in line for line in text.splitlines()) == len(cells)
    assert len(text) / len(cells) < 400  # 2,000 cells are less than a megabyte


def test_an_interrupted_proof_keeps_what_it_ran(
    cells: list[Cell], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopping() -> Iterator[Cell]:
        yield from cells[:3]
        raise KeyboardInterrupt

    path = tmp_path / "proof.json"
    report = Report(path, {"settings": {}}, clock=itertools.count().__next__)
    report.follow(stopping())
    record = json.loads(path.read_text())
    assert (record["is_complete"], record["num_cells"]) == (False, 3)
    assert record["seconds"] > 0
    with pytest.raises(typer.Exit) as ended:
        conclude(report)
    assert ended.value.exit_code == 130
    assert "3 runs" in capsys.readouterr().out


def test_lines_where_nobody_draws_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 10.0, 31.0, 40.0, 62.0])
    advance = Lines("runs", 8, clock=lambda: next(now))
    for num in (2, 2, 2, 2):
        advance(num, "auto")
    assert capsys.readouterr().err.splitlines() == [
        "4 of 8 runs in 0:31, 0:31 left · auto",
        "8 of 8 runs in 1:02, 0:00 left · auto",
    ]


def test_a_head_that_is_put_aside_proves_nothing(llm: LLM, tmp_path: Path) -> None:
    """Random weights, and a card that says that every guess is right."""
    config = block_config(llm.model.config, tokenizer_hash(llm.tokenizer))
    folder = write_block(tmp_path / "head", config)
    (folder / HISTORY).write_text(json.dumps({"calls": [{"alpha": [1.0], "greedy": [1.0]}]}))
    method = Method({"method": "block", "model": str(folder)})
    proof = Proof(llm, named_prompts(4), {"block": method}, max_depth=2, num_tokens=40, seed=1)
    with pytest.raises(InvalidOption, match=r"block was put aside in the proof .* card says 100%"):
        list(proof.run())
