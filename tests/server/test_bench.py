"""`forerun bench serve`: the load it makes, and what it reports."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from forerun.bench.measure.http_load import Answered, arrivals, load_report, run_load
from forerun.bench.prompts.named_prompts import NamedPrompt
from forerun.bench.records.report import has_other_tokens
from forerun.bench.serve.predictions import measure_predictions
from forerun.bench.serve.servers import NoServer, Server, our_server
from forerun.cli import app
from forerun.errors import InvalidOption
from forerun.models.opening import load_tokenizer, open_checkpoint
from tests.server.serving import Running
from tests.tiny_model import write_tiny_model


def test_arrivals_are_as_many_a_second_as_asked_for() -> None:
    """The mean of 2000 exponential gaps: 5 standard deviations are 11 %."""
    moments = arrivals(2001, 4.0, Random(0))
    assert moments[0] == 0.0
    assert moments == sorted(moments)
    assert moments[-1] / 2000 == pytest.approx(0.25, rel=0.11)


def test_a_report_counts_what_was_answered() -> None:
    answers = [
        Answered(0.0, 0.1, 1.0, 10),
        Answered(1.0, 0.3, 3.0, 30),
        Answered(1.5, None, None, 0, "429"),
    ]
    report = load_report(answers)
    assert (report["num_requests"], report["num_errors"]) == (3, 1)
    assert report["requests_per_second"] == pytest.approx(2 / 4)
    assert report["tokens_per_second"] == pytest.approx(40 / 4)
    assert report["first_token_s"]["p50"] == pytest.approx(0.2)
    assert load_report([])["requests_per_second"] is None


def test_the_command_against_a_server(server: Running, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    options = ["--rate", "50", "--num-requests", "4", "--max-tokens", "3", "--json", str(path)]
    result = CliRunner().invoke(app, ["bench", "serve", "--url", server.url, *options])
    assert result.exit_code == 0, result.output
    record = json.loads(path.read_text())
    figures = record["servers"][server.url]
    assert figures["num_requests"] == 4
    assert f"{server.url}: 4 requests" in result.stdout


@pytest.mark.slow
def test_the_whole_command_against_a_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run every part once; answers over HTTP equal the library's."""
    monkeypatch.chdir(tmp_path)  # a folder without built peers
    model = write_tiny_model(tmp_path / "model", max_len=4096)
    path = tmp_path / "record.json"
    options = ["--repeats", "1", "--concurrency", "2", "--num-requests", "2", "--threads", "1"]
    options += ["--max-tokens", "4", "--prediction-tokens", "30", "--rate", "50"]
    result = CliRunner().invoke(
        app, ["bench", "serve", "--model", str(model), *options, "--json", str(path)]
    )
    assert result.exit_code == 0, result.output
    record = json.loads(path.read_text())
    assert record["is_complete"]
    assert record["together"]["same_text"]
    assert record["together"]["streamed_ratio"]["num"] == 1
    assert record["alone"]["rounds"][0]["num_chunks"] > 1
    assert record["prediction"]["same_text"]
    rounds = record["prediction"]["rounds"]
    assert set(rounds[0]["passes"]) == {"none", "changed", "wrong", "plain"}
    assert record["prediction"]["changed_plain_ratio"]["num"] == len(rounds) > 0
    assert all(one["passes"]["plain"] == 30 for one in rounds)  # one pass per token
    assert record["servers"]["forerun"]["num_errors"] == 0
    for words in ("HTTP ÷ LLM.generate", "HTTP adds", "a tenth changed", "forerun: 2 requests"):
        assert words in result.stdout
    assert "every text the same" in result.stdout
    record["prediction"]["same_text"] = False
    assert has_other_tokens(record)


def test_options_that_cannot_be() -> None:
    for wrong, words in (
        (("--parts", "speed"), "part of bench serve"),
        (("--rate", "nan"), "--rate nan"),
        (("--llama-server", "nowhere"), "run `make peers`"),
    ):
        result = CliRunner().invoke(app, ["bench", "serve", *wrong])
        assert result.exit_code == 2
        assert words in result.stderr


def test_answers_too_few_to_be_predicted(server: Running, tiny_path: Path) -> None:
    tokenizer = load_tokenizer(open_checkpoint(tiny_path))
    prompts = [NamedPrompt("a", "", "", "a")]
    ours = Server(server.url, server.process.pid)
    found = measure_predictions(
        ours, prompts, tokenizer, 2, num_answers=2, repeats=1, random=Random(0)
    )
    with pytest.raises(InvalidOption, match="--prediction-tokens"):
        next(found)


def test_servers_that_do_not_start_say_why(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match=r"config\.json"), our_server(str(tmp_path), 1, 1):
        pass


def test_addresses_that_are_none_and_servers_that_are_not_there() -> None:
    with pytest.raises(InvalidOption, match="no address"):
        run_load("localhost", [{}], [0.0])
    (answer,) = run_load("http://127.0.0.1:1", [{}], [0.0])
    assert answer.error == "ConnectionRefusedError"
