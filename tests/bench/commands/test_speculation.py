"""`forerun bench speculation` and `show`, `alpha` and `gate`, from the outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forerun.bench.records.record import read_record
from forerun.cli import app
from forerun.engine import LLM
from forerun.models.text.compatibility import tokenizer_hash
from tests.drafters.heads.random_heads import CONFIGS, write_head

RECORDS = Path(__file__).parents[3] / "bench" / "records"


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def record_path(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "tiny.json"
    result = run(
        *("bench", "speculation", "--model", tiny_path, "--classes", "story", "--pairs", "2"),
        *("--max-tokens", "8", "--methods", "prompt_lookup", "--depths", "2", "--json", path),
    )
    assert result.exit_code == 0, result.output
    return path


def test_bench_measures_and_records(record_path: Path) -> None:
    record = read_record(record_path)
    assert record.is_complete
    assert list(record.contenders) == ["plain", "default", "prompt_lookup:2"]
    assert all(cell.same_tokens == 1 for cell in record.cells)
    assert record.machine["cpu"]
    assert record.model["sha256"]
    assert record.settings["seed"] == 0
    assert record.settings["max_model_len"] > 8
    assert {"quantization", "chat_template", "threads", "kernels"} <= record.settings.keys()


@pytest.mark.slow
def test_what_was_rounded_is_in_the_record_and_its_title(
    smollm2_path: Path, tmp_path: Path
) -> None:
    path, size = tmp_path / "int8.json", ("--classes", "story", "--pairs", "1", "--max-tokens", "4")
    options = (*size, "--methods", "none", "--activations", "int16", "--json", path)
    result = run("bench", "speculation", "--model", smollm2_path, *options)
    assert result.exit_code == 0, result.output
    settings = read_record(path).settings
    assert (settings["quantization"], settings["activations"]) == (None, "int16")
    assert settings["kv_cache_dtype"] == "float32"
    title = run("bench", "show", path).stdout.splitlines()[0]
    assert title.endswith(", activations int16, kv_cache_dtype float32")


@pytest.mark.parametrize("command", [("alpha",), ("bench", "passes")])
def test_rounding_that_would_change_nothing_is_refused(
    tiny_path: Path, command: tuple[str, ...]
) -> None:
    result = run(*command, "--model", tiny_path, "--activations", "int8")
    assert result.exit_code == 2
    assert "change nothing where all weights are floats" in result.output


def test_unknown_activations_are_refused_by_bench_kernels() -> None:
    result = run("bench", "kernels", "--activations", "int7")
    assert result.exit_code == 2
    assert "unknown activations 'int7'; did you mean 'int8'?" in result.output


def test_bench_shows_a_record_again(record_path: Path, tmp_path: Path) -> None:
    result = run("bench", "show", record_path, "--html", tmp_path / "report.html")
    assert result.exit_code == 0
    assert "prompt_lookup:2" in result.stdout
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert run("bench", "show", record_path, "--strict").exit_code == 0
    values = json.loads(record_path.read_text())
    values["cells"][-1]["same_tokens"] = 0.5
    other = tmp_path / "other.json"
    other.write_text(json.dumps(values))
    assert run("bench", "show", other).exit_code == 0
    assert run("bench", "show", other, "--strict").exit_code == 1


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("startup", "starts", [{}]),
        ("startup", "is_complete", None),
        ("batch-load", "load.ratio.4", {"median": 1}),
        ("parity", "prompts.0.parting", 7),
        ("parity", "measured", "charity"),
        ("kernels", "products", []),
        ("smollm2-passes", "passes.5", {}),
        ("smollm2-passes", "machine", "abacus"),
        ("proof", "num_different", None),
    ],
)
def test_a_damaged_report_of_another_bench_is_refused(
    tmp_path: Path, name: str, place: str, value: Any
) -> None:
    values = json.loads((RECORDS / f"{name}.json").read_text())
    *outer, last = place.split(".")
    inside = values
    for key in outer:
        inside = inside[int(key) if isinstance(inside, list) else key]
    if value is None:
        del inside[last]
    else:
        inside[last] = value
    path = tmp_path / "report.json"
    path.write_text(json.dumps(values))
    result = run("bench", "show", path)
    assert result.exit_code == 2, result.output
    assert "report.json is damaged" in result.stderr or "is no record" in result.stderr


def test_gate_says_yes_no_or_that_it_cannot_tell(record_path: Path, tmp_path: Path) -> None:
    values = json.loads(record_path.read_text())
    for cell in values["cells"]:
        pace = 100.0 if cell["contender"] == "plain" else 200.0
        cell["tokens_per_second"] = pace
        cell["answer_ms"] = dict.fromkeys(("p50", "p95", "p99"), 1000 / pace)
    good = tmp_path / "good.json"
    good.write_text(json.dumps(values))
    assert run("gate", good, good).exit_code == 0
    refused = run("gate", good, good, "--canary-contender", "plain")
    assert refused.exit_code == 1
    assert "hold it back" in refused.stdout
    promoted = json.loads(run("gate", good, good, "--json").stdout)["promoted"]
    assert promoted is True
    values["model"]["sha256"] = "other"
    (tmp_path / "other.json").write_text(json.dumps(values))
    refused = run("gate", good, tmp_path / "other.json")
    assert refused.exit_code == 2
    assert "another model" in refused.stderr


def test_only_what_ran_is_recorded(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "plain.json"
    result = run(
        *(
            "bench",
            "speculation",
            "--model",
            tiny_path,
            "--classes",
            "story",
            "--pairs",
            "1",
            "--max-tokens",
            "4",
        ),
        *("--no-speculation", "--methods", "suffix", "--json", path),
    )
    assert result.exit_code == 0, result.output
    record = read_record(path)
    assert list(record.contenders) == ["plain"]
    assert record.settings["methods"] == "none"


def test_alpha_in_the_form_of_the_papers_tables(tiny_path: Path, tiny_draft_path: Path) -> None:
    result = run(
        *("alpha", "--model", tiny_path, "--draft-model", tiny_draft_path, "--class", "story"),
        *("--num-tokens", "12", "--max-tokens", "6", "--drafters", "bigram"),
        *("--lenience", "1,0.1", "--json"),
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [(row["drafter"], row["temperature"]) for row in rows] == [
        *(("bigram", 0), ("draft", 0)),
        *(("bigram", 1), ("draft", 1)),
    ]
    for row in rows:
        assert row["num_tokens"] == 12
        if row["rejection"] is not None:
            assert 0 <= row["coupled"]["alpha"] <= row["rejection"]["alpha"] + 1e-9 <= 1 + 1e-9
            assert row["lenient"]["1"]["alpha"] == pytest.approx(row["rejection"]["alpha"])
            assert row["lenient"]["0.1"]["alpha"] >= row["rejection"]["alpha"] - 1e-9
    shown = run("alpha", "--model", tiny_path, "--class", "story", "--num-tokens", "4")
    assert "M_p" in shown.stdout


def test_alpha_of_what_a_config_names(tiny_path: Path) -> None:
    parts = ["suffix", "own_layers"]
    config = {"method": "hybrid", "methods": parts, "num_layers": 2, "suffix_min_match": 30}
    result = run(
        *("alpha", "--model", tiny_path, "--drafters", "bigram", "--temperatures", "0"),
        *("--class", "story", "--num-tokens", "12", "--json"),
        *("--speculative-config", json.dumps(config)),
    )
    assert result.exit_code == 0, result.output
    guessed = {row["drafter"]: row["guessed"] for row in json.loads(result.stdout)["rows"]}
    assert list(guessed) == ["bigram", "suffix", "first 2 layers"]
    assert guessed["suffix"] == 0, "no stretch of 30 tokens stood there before"


def test_alpha_of_several_heads_in_one_table(tiny_path: Path, llm: LLM, tmp_path: Path) -> None:
    heads = [
        write_head(tmp_path / kind, CONFIGS[kind](llm.model.config, tokenizer_hash(llm.tokenizer)))
        for kind in ("eagle3", "medusa", "mtp")
    ]
    named = [part for head in heads for part in ("--head", head)]
    result = run(
        *("alpha", "--model", tiny_path, "--drafters=", *named, "--temperatures", "1"),
        *("--class", "story", "--num-tokens", "12", "--json"),
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [row["drafter"] for row in rows] == ["eagle3 (eagle3)", "medusa (medusa)", "mtp (mtp)"]
    assert all(0 < row["rejection"]["alpha"] < 1 for row in rows)


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ("bench speculation --pairs 0", "--pairs 0 is not allowed; give 1 or more."),
        ("bench speculation --max-tokens 1", "--max-tokens 1 is not allowed; give 2 or more."),
        (
            "bench speculation --depths=",
            "--depths is empty; give some like 3,7, or use --methods none",
        ),
        ("bench speculation --depths none", "use --methods none"),
        (
            "bench speculation --methods=",
            "--methods names no method; give some, separated by commas, or none",
        ),
        ("bench speculation --peers ,", "--peers names no peer"),
        ("bench speculation --peer-modes plain", "--peers names no peer"),
        (
            "bench passes smollm2-135m",
            "unexpected argument 'smollm2-135m' for forerun bench passes; to name a model, use",
        ),
        ("bench smollm2-135m", "No such command 'smollm2-135m'; see "),
        ("gate one.json", "Missing argument 'canary'; see "),
        (
            "gate 1.json 2.json 3.json",
            "unexpected argument '3.json' for forerun gate; drop it, or see ",
        ),
        ("bench speculation --pairs many", "Invalid value for '--pairs'"),
        ("bench startup --repeats 0", "--repeats 0 is not allowed; give 1 or more."),
        ("bench batch --together 1", "--together 1 is not allowed; give 2 or more."),
        ("bench parity --prompts 900 --model {model}", "900 named prompts are not to be had"),
        ("alpha --drafters=", "--drafters and --temperatures must not be empty"),
        ("alpha --temperatures ,", "--drafters and --temperatures must not be empty"),
        ("alpha --max-tokens 0", "--max-tokens 0 is not allowed; give 1 or more."),
        ("bench kernels --model {model}", "No such option: --model"),
        ("bench kernels --show x.json", "No such option: --show"),
        ("bench passes --strict", "No such option: --strict"),
        ("bench startup --speculative-config {{}}", "No such option: --speculative-config"),
        ("bench startup --html x.html", "No such option: --html"),
        ("bench batch --plot x.svg", "No such option: --plot"),
        ("bench batch --depths 3", "No such option: --depths"),
        ("bench parity --show x.json", "No such option: --show"),
        ("bench show x.json --json y.json", "No such option: --json"),
        ("bench speculation --repeats 3", "No such option: --repeats"),
        ("bench kernel", "Did you mean 'kernels'?"),
        ("bench speculation --seed -1", "--seed -1 is not allowed; give 0 or more"),
        ("bench speculation --classes=", "--classes names no class"),
        ("bench speculation --model absent --plot x.gif", "cannot draw to 'x.gif'; end it in .png"),
        ("bench batch --in-flight=", "--in-flight must not be empty"),
        ("bench batch --parts ,", "--parts and --in-flight must not be empty"),
        ("alpha --seed -1", "--seed -1 is not allowed"),
        ("alpha --no-speculation", "No such option: --no-speculation"),
        ("alpha --spec-length 3", "No such option: --spec-length"),
        (
            'alpha --speculative-config {{"method":"suffix","num_speculative_tokens":3}}',
            "α is measured one guess at a time; drop num_speculative_tokens.",
        ),
        ("alpha --lenience 1,0", "--lenience 0 is not allowed; give more than 0, up to 1"),
        ("alpha --lenience -1", "--lenience -1 is not allowed"),
        ("alpha --lenience 2", "--lenience 2 is not allowed"),
        ("alpha --lenience nan", "--lenience nan is not allowed"),
        ("bench speculation --model {model} --classes storey", "did you mean 'story'"),
        ("bench speculation --model {model} --depths 2,x", "--depths holds 'x'"),
        (
            "bench speculation --model {model} --methods prompt_lokup",
            "did you mean 'prompt_lookup'",
        ),
        (
            "bench speculation --model {model} --peers transformers --temperature 1",
            "answer greedily",
        ),
        ("bench speculation --model {model} --peers lamacpp", "did you mean 'llamacpp'"),
        ("bench show absent.json", "cannot be read as a bench record"),
        ("alpha --model {model} --temperatures hot", "--temperatures 'hot' is not a list"),
        (
            "alpha --model {model} --num-tokens 0 --class story",
            "--num-tokens 0 is not allowed",
        ),
        ("gate absent.json absent.json", "cannot be read as a bench record"),
    ],
)
def test_mistakes_are_one_sentence(tiny_path: Path, args: str, part: str) -> None:
    result = run(*args.format(model=tiny_path).split())
    assert result.exit_code == 2, result.output
    assert part in result.stderr
    assert result.stderr.count("\n") == 1
