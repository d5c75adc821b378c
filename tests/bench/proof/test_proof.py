"""The proof: what it runs, what it finds, and that stopping it loses nothing."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
import typer

from forerun.bench.prompts.named_prompts import NamedPrompt, named_prompts
from forerun.bench.proof.parts import Parts
from forerun.bench.proof.proof import SAMPLING, Cell, Method, Proof, as_json, proof_methods
from forerun.bench.proof.sample import BATCH_SIZES, BRANCHES, Choices, Run, sample_runs
from forerun.cli.proof import Report, conclude
from forerun.cli.terminal.progress import Lines
from forerun.drafters.heads.folder import HISTORY
from forerun.engine import LLM
from forerun.errors import InvalidOption, ProofCutShort
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
        "batch_size": BATCH_SIZES,
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
    """Bias other tokens: those of the real settings are not in the tiny model's vocabulary."""
    with pytest.MonkeyPatch.context() as patch:
        for options in SAMPLING.values():
            if "logit_bias" in options:
                patch.setitem(options, "logit_bias", {3: 1.0, 5: -1.0})
        yield


def light_proof(tiny_path: Path, head: Path) -> Proof:
    llm = LLM(tiny_path, max_num_seqs=16, speculative_config=None, max_model_len=99, num_threads=1)
    methods = proof_methods(str(tiny_path), num_layers=1, heads=[head])
    names = ("suffix", "draft_model", "merge", f"block ({head.name})")
    light = {name: methods[name] for name in names}
    return Proof(llm, _short(6), light, max_depth=4, num_tokens=12, seed=1)


@pytest.fixture(scope="module")
def head(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    llm = LLM(tiny_path, speculative_config=None, num_threads=1)
    config = block_config(llm.model.config, tokenizer_hash(llm.tokenizer))
    return write_block(tmp_path_factory.mktemp("heads") / "mine", config)


@pytest.fixture(scope="module")
def cells(tiny_path: Path, head: Path) -> list[Cell]:
    return list(light_proof(tiny_path, head).run())


def test_a_book_of_phrases_is_among_them_where_there_is_one(tmp_path: Path) -> None:
    assert "phrases" not in proof_methods("a model", num_layers=1)
    found = proof_methods("a model", num_layers=1, phrases=tmp_path)["phrases"]
    assert found == Method({"method": "phrases", "model": str(tmp_path)})


def _short(num: int) -> list[NamedPrompt]:
    """Return short prompts of small letters, the only ones that the tiny model knows."""
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


def test_batches_of_all_sizes(cells: list[Cell]) -> None:
    """Cells of a batch that is not full record its actual size."""
    sizes = Counter(cell.batch_size for cell in cells)
    assert {1, 3} < set(sizes)
    assert max(sizes) > 3
    assert all(num % size == 0 for size, num in sizes.items())


def test_parts_are_the_whole(tiny_path: Path, head: Path, cells: list[Cell]) -> None:
    proof = light_proof(tiny_path, head)
    parts = [list(proof.run(part=part, num_parts=3)) for part in range(3)]
    assert all(parts)
    assert Counter(map(key, itertools.chain(*parts))) == Counter(map(key, cells))


def key(cell: Cell) -> tuple[object, ...]:
    """Return what must not depend on the parts; counts do, as drafters learn from all answers."""
    return *(getattr(cell, field.name) for field in fields(Run)), cell.first_difference


def wordy_proof(tiny_path: Path, head: Path) -> Proof:
    """Make the proof in another process, in which the settings are not patched."""
    SAMPLING["T=0.9 bias presence=0.5 frequency=0.3"]["logit_bias"] = {3: 1.0, 5: -1.0}
    return light_proof(tiny_path, head)


@pytest.mark.slow  # another process has to start
def test_processes_share_a_proof(tiny_path: Path, head: Path, cells: list[Cell]) -> None:
    told = Counter[str]()
    parts = Parts(partial(wordy_proof, tiny_path, head), num_parts=2)
    found = parts.run(light_proof(tiny_path, head), lambda num, what: told.update({what: num}))
    assert Counter(map(key, found)) == Counter(map(key, cells))
    assert told.total() - told["plain"] == len(cells)


def no_proof() -> Proof:
    raise InvalidOption("planted")


@pytest.mark.slow
def test_a_process_that_ends_early_ends_the_proof(tiny_path: Path) -> None:
    llm = LLM(tiny_path, max_num_seqs=16, speculative_config=None, max_model_len=99, num_threads=1)
    proof = Proof(llm, _short(2), {"auto": Method({})}, max_depth=1, num_tokens=2, seed=1)
    with pytest.raises(ProofCutShort, match="ended early"):
        list(Parts(no_proof, num_parts=2).run(proof, lambda *_: None))


def test_a_difference_is_found(tiny_path: Path) -> None:
    """The expected tokens are replaced by others, as if plain decoding differed."""
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
    """A head with random weights, whose card promises that every guess is right."""
    config = block_config(llm.model.config, tokenizer_hash(llm.tokenizer))
    folder = write_block(tmp_path / "head", config)
    (folder / HISTORY).write_text(json.dumps({"calls": [{"alpha": [1.0], "greedy": [1.0]}]}))
    method = Method({"method": "block", "model": str(folder)})
    proof = Proof(llm, named_prompts(4), {"block": method}, max_depth=2, num_tokens=40, seed=1)
    with pytest.raises(InvalidOption, match=r"block was put aside in the proof .* card says 100%"):
        list(proof.run())
