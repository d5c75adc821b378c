"""Requests in flight: what is measured, and what is promised of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
import typer
from typer.testing import CliRunner

from forerun.bench.batch.in_flight import Answered, Prompts, answer_together, mixed_prompts
from forerun.bench.batch.load import Pair, load_record, load_verdicts, measure_load
from forerun.bench.batch.offline import OURS, measure_offline, offline_record, offline_verdict
from forerun.bench.batch.sharing import admission, prefix_use
from forerun.bench.batch.together import Round, measure_together, together_record, together_verdict
from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.cli.bench.batch import _Plan
from forerun.cli.bench.options import bench_options, peer_options
from forerun.cli.bench.series_options import series_options
from forerun.cli.bench.speculation import bench
from forerun.cli.engine_options import engine_options
from forerun.cli.group import OneSentenceGroup
from forerun.engine import LLM
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.types import SamplingParams
from tests.tiny_model import write_tiny_model

PARAMS = SamplingParams(temperature=0, max_tokens=6)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "long", max_len=3000)


@pytest.fixture(scope="module")
def llm(path: Path) -> LLM:
    return LLM(path, max_num_seqs=4)


def prompts_of(llm: LLM, num: int) -> list[list[int]]:
    return [prompt[:40] for prompt in mixed_prompts(["story", "chat"], num, 0, llm.tokenizer)]


def test_classes_take_turns(llm: LLM) -> None:
    three = mixed_prompts(["story", "chat"], 3, 0, llm.tokenizer)
    assert len(three) == 3
    assert three[0] == mixed_prompts(["story"], 1, 0, llm.tokenizer)[0]
    assert three[1] == mixed_prompts(["chat"], 1, 0, llm.tokenizer)[0]


def test_a_repeated_run_is_no_cheaper(llm: LLM) -> None:
    prompts = prompts_of(llm, 2)
    ticks = itertools.count()
    before = llm.metrics()["cached_prompt_tokens"]
    first = answer_together(llm, prompts, PARAMS, ticks.__next__)
    second = answer_together(llm, prompts, PARAMS, ticks.__next__)
    assert llm.metrics()["cached_prompt_tokens"] == before
    assert first == second
    assert first.seconds == 1
    assert first.num_tokens == sum(map(len, first.tokens))


def test_together_and_alone_say_the_same(llm: LLM) -> None:
    rounds = [prompts_of(llm, 3), prompts_of(llm, 6)[3:]]
    ticks = itertools.count()
    plain = llm.with_speculation(None)
    found = list(measure_together(plain, rounds, PARAMS, ticks.__next__, seed=0))
    assert [(one.together_s, one.alone_s) for one in found] == [(1, (1, 1, 1))] * 2
    assert all(one.same_tokens for one in found)
    assert together_record(found, 0)["ratio"]["median"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("together", "word"), [(3.0, "PASS"), (3.5, "FAIL")])
def test_the_promise_of_sharing_passes(together: float, word: str) -> None:
    rounds = [Round(80, together, (1.0,) * 8, same_tokens=True)] * 3
    assert together_verdict(rounds, 0).word == word
    assert together_verdict([], 0).word == "NOT MEASURED"


def test_load_runs_both_ways_on_the_same_prompts(llm: LLM) -> None:
    lists = [prompts_of(llm, 1), prompts_of(llm, 4)]
    ticks = itertools.count()
    llms = {PLAIN: llm.with_speculation(None), DEFAULT: llm}
    pairs = list(measure_load(llms, lists, PARAMS, ticks.__next__, Random(0)))
    assert [pair.num_in_flight for pair in pairs] == [1, 4]
    assert all(pair.same_tokens and pair.ratio == 1 for pair in pairs)
    record = load_record(pairs, 0)
    assert set(record["ratio"]) == {"1", "4"}


def test_speculation_must_not_lose_under_any_load() -> None:
    def pairs(num_in_flight: int, ratio: float, num: int) -> list[Pair]:
        return [Pair(num_in_flight, 9, ratio, 1.0, same_tokens=True)] * num

    found = [*pairs(1, 1.2, 20), *pairs(4, 0.9, 20), *pairs(16, 1.2, 3)]
    words = [outcome.word for outcome in load_verdicts(found, [1, 4, 16, 32], 0)]
    assert words == ["PASS", "FAIL", "NOT MEASURED", "NOT MEASURED"]


class Slow:
    """A server that takes twice our time, by a clock that ticks once a look."""

    name = "llamacpp/plain"

    def __init__(self) -> None:
        self.asked: list[Sequence[int]] = []

    def answer_all(self, prompts: Prompts, num_tokens: Sequence[int]) -> Answered:
        self.asked.append(num_tokens)
        return Answered(2.0, tuple((0,) * num for num in num_tokens[: len(prompts)]))


def test_offline_asks_a_server_for_as_many_tokens(llm: LLM) -> None:
    server, ticks = Slow(), itertools.count()
    prompts = prompts_of(llm, 5)
    found = list(measure_offline(llm, [server], prompts, 3, PARAMS, ticks.__next__, seed=0))
    ours = answer_together(llm, prompts, PARAMS, float)
    assert [list(counts) for counts in server.asked[1:]] == [[len(t) for t in ours.tokens]] * 3
    assert [one.ratio("llamacpp/plain") for one in found] == [2.0] * 3
    assert {one.num_tokens[OURS] for one in found} == {ours.num_tokens}
    assert offline_record(found, 0)["ratio"]["llamacpp/plain"]["median"] == 2
    assert offline_verdict(found, 0).word == "PASS"
    assert offline_verdict([], 0).word == "NOT MEASURED"


def test_a_shared_prefix_is_computed_once(llm: LLM) -> None:
    text = [n % 26 for n in range(1000)]
    found = prefix_use(llm, text, [[1, 2, 3], [4, 5, 6]])
    assert (found.num_computed_first, found.outcome.word) == (1003, "PASS")
    assert found.num_computed_second == 3


def test_a_stream_gets_a_token_in_every_step_while_a_long_prompt_is_read(llm: LLM) -> None:
    found = admission(llm.with_speculation(None), [1, 2, 3], [n % 26 for n in range(2000)])
    assert found.num_steps >= 2000 // 256
    assert found.num_steps_with_token == found.num_steps
    assert found.outcome.word == "PASS"
    pool = llm.engine.core.cache.pool
    assert pool.num_free == pool.num_pages


def run(*args: str | Path) -> tuple[int, str]:
    app = typer.Typer(cls=OneSentenceGroup)
    app.command()(bench)
    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["bench", *map(str, args)])
    return result.exit_code, result.output


def test_the_command_records_every_part(path: Path, tmp_path: Path) -> None:
    record = tmp_path / "batch.json"
    code, shown = run(
        *("batch", "--model", path, "--classes", "story", "--pairs", "2", "--repeats", "2"),
        *("--max-tokens", "4", "--in-flight", "1,2", "--together", "2", "--json", record),
    )
    assert code == 0, shown
    found = json.loads(record.read_text())
    assert found["is_complete"] is True
    assert found["model"]["sha256"]
    assert len(found["together"]["rounds"]) == 2
    assert len(found["load"]["pairs"]) == 4
    assert found["load"]["same_tokens"] is True
    assert found["sharing"]["prefix"]["num_computed_second"] == 8
    assert "in flight" in shown


def test_there_is_room_for_the_longest_prompt_of_every_part(path: Path) -> None:
    """--in-flight 1 needs one story; the second of --prompts is longer."""
    plan = _Plan(
        engine_options(model=str(path)),
        bench_options(classes="story,extract", pairs=1, max_tokens=4),
        series_options(parts="offline", in_flight="1", num_prompts=2),
        peer_options(peers="llamacpp"),
    )
    story, extract = plan.prompts("offline", load_tokenizer(open_checkpoint(path)))
    assert len(story) < len(extract)
    assert plan.max_len() == len(extract) + 4


def test_an_interrupted_part_keeps_what_it_measured(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(*_: object) -> Iterator[Pair]:
        yield Pair(1, 9, 1.0, 1.0, same_tokens=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("forerun.bench.batch.load.measure_load", stopping)
    record = tmp_path / "batch.json"
    code, _ = run("batch", "--model", path, "--parts", "load,sharing", "--json", record)
    found = json.loads(record.read_text())
    assert (code, found["is_complete"], len(found["load"]["pairs"])) == (130, False, 1)
    assert "sharing" not in found


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ("--parts togther", "did you mean 'together'"),
        ("--parts offline", "needs --peers llamacpp"),
        ("--in-flight 1,x", "--in-flight holds 'x'"),
        ("--peers transformers", "--peers llamacpp alone"),
        ("--repeats 0", "--repeats 0 is not allowed"),
    ],
)
def test_mistakes_are_one_sentence(path: Path, args: str, part: str) -> None:
    code, shown = run("batch", "--model", path, *args.split())
    assert code == 2, shown
    assert part in shown
