"""`forerun generate`, `chat` and `demo` as a person at a terminal meets them."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forerun.cli import app
from forerun.cli.options.shared import keep, takes
from forerun.models.text.tokenizer import Tokenizer
from tests.tiny_model import EOS, write_tiny_model

MODES = ("accepted", "recovered", "bonus", "plain")


@pytest.fixture
def run(tiny_path: Path) -> Any:
    def invoke(command: str, *args: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [command, "-m", str(tiny_path), *args], input=stdin)

    return invoke


def refused(result: Result, why: str) -> None:
    assert result.exit_code == 2, result.output
    assert why in result.stderr
    assert result.stderr.startswith("forerun: ")
    assert len(result.stderr.strip().splitlines()) == 1


def test_json_is_one_object_with_everything(run: Any) -> None:
    result = run("generate", "abcabcabc", "--json", "--max-tokens", "12", "--ignore-eos")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert set(answer) >= {
        "text", "token_ids", "finish_reason", "prompt_tokens", "seed", "origins", "stats",
    }  # fmt: skip
    assert len(answer["token_ids"]) == len(answer["origins"]) == 12
    assert set(answer["origins"]) <= set(MODES)
    assert answer["prompt_tokens"] == 9
    assert answer["finish_reason"] == "length"
    assert set(answer["stats"]) >= {
        "target_passes", "draft_tokens", "accepted_tokens", "acceptance_rate",
        "mean_acceptance_length", "seconds", "tokens_per_second",
    }  # fmt: skip


def test_speculation_off_and_on_agree(run: Any) -> None:
    options = ("--json", "--max-tokens", "20", "--temperature", "0.8", "--seed", "3")
    plain = json.loads(run("generate", "abcabc", "--no-speculation", *options).stdout)
    assert plain["stats"]["draft_tokens"] == 0
    for config in (
        {"method": "bigram", "num_speculative_tokens": 3},
        {"method": "ngram", "prompt_lookup_max": 3, "num_branches": 2},
    ):
        result = run("generate", "abcabc", "--speculative-config", json.dumps(config), *options)
        answer = json.loads(result.stdout)
        assert answer["token_ids"] == plain["token_ids"]


def test_short_flags_name_a_draft_model(run: Any, tiny_draft_path: Path) -> None:
    result = run(
        "generate", "abc", "--json", "--max-tokens", "9", "--ignore-eos", "--spec-length", "2",
        "--speculative-decoding", "--draft-model", str(tiny_draft_path),
    )  # fmt: skip
    assert json.loads(result.stdout)["stats"]["choices"]  # if they pay is for the clock to say


def test_text_goes_to_stdout_and_the_summary_to_stderr(run: Any) -> None:
    options = ("--max-tokens", "9", "--ignore-eos", "--seed", "1")
    shown = run("generate", "abc", *options)
    answer = json.loads(run("generate", "abc", *options, "--json").stdout)
    assert shown.stdout == answer["text"] + "\n"
    assert "9 tokens in" in shown.stderr
    assert "seed 1" in shown.stderr


def test_trace_has_a_line_per_round(run: Any) -> None:
    options = ("--max-tokens", "12", "--ignore-eos")
    passes = json.loads(run("generate", "ababab", *options, "--json").stdout)["stats"]
    lines = run("generate", "ababab", *options, "--trace").stdout.splitlines()
    assert len(lines) == passes["target_passes"]
    assert all("→" in line or "✓" in line for line in lines)


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_trace_has_marks_on_a_terminal_without_colours(
    tiny_path: Path, env: dict[str, str]
) -> None:
    def traced(**terminal: str) -> list[str]:
        args = ["generate", "ababab", "-m", str(tiny_path), "--max-tokens", "4", "--trace"]
        given = {"FORCE_COLOR": "1", **terminal}  # a pipe treated as a terminal
        return CliRunner().invoke(app, args, env=given).stdout.splitlines()

    assert all("→" in line or "✓" in line for line in traced(**env))
    assert not any("→" in line or "✓" in line for line in traced(TERM="xterm"))


def test_trace_and_stats_say_what_was_chosen_and_why(run: Any) -> None:
    fixed = '{"method": "suffix", "num_speculative_tokens": 3, "adaptive": false}'
    for config in ((), ("--speculative-config", fixed)):
        options = ("--max-tokens", "60", "--ignore-eos", *config)
        stats = json.loads(run("generate", "ababab", *options, "--json").stdout)["stats"]
        assert sum(stats["choices"].values()) == stats["target_passes"] - 1  # not the prompt's
        lines = run("generate", "ababab", *options, "--trace").stdout.splitlines()
        assert all(line.endswith(")") for line in lines[1:])
    assert stats["choices"].keys() <= {f"fixed: suffix to {n}" for n in (1, 2, 3)} | {"no room"}
    assert stats["choices"]["fixed: suffix to 3"] > 0
    assert any("(fixed: suffix to 3)" in line for line in lines)


def test_stdin_chat_and_n(run: Any) -> None:
    options = ("--max-tokens", "4", "--temperature", "1", "--json")
    assert run("generate", "-", *options, stdin="abc").exit_code == 0
    assert json.loads(run("generate", "abc", "--chat", *options).stdout)["prompt_tokens"] == 6
    several = json.loads(run("generate", "abc", "-n", "3", *options).stdout)
    assert len(several["choices"]) == 3
    assert several["choices"][0]["token_ids"] == several["token_ids"]


def test_without_a_number_the_answer_fits_into_the_context(run: Any) -> None:
    result = run("generate", "a" * 200, "--ignore-eos", "--json")
    assert len(json.loads(result.stdout)["token_ids"]) == 56


def test_little_memory_is_a_short_context(run: Any) -> None:
    result = run("generate", "abc", "--ignore-eos", "--json", "--kv-cache-memory", "64 KiB")
    assert 3 < len(json.loads(result.stdout)["token_ids"]) < 128


def test_logprobs_in_json(run: Any) -> None:
    result = run("generate", "abc", "--max-tokens", "3", "--logprobs", "2", "--json")
    assert all(len(row) >= 2 for row in json.loads(result.stdout)["logprobs"])


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "give one prompt"),
        (("",), "empty"),
        (("a", "--prompt", "b"), "give one prompt"),
        (("a", "--temperature", "-1"), "temperature=-1.0"),
        (("a", "--top-p", "0"), "top_p=0.0"),
        (("a", "--max-tokens", "0"), "max_tokens=0"),
        (("a", "--acceptance", "couple"), "did you mean 'coupled'"),
        (("a", "--lenience", "0.5"), "lossy"),
        (("a", "--logit-bias", "[1]"), "--logit-bias must be"),
        (("a", "--logit-bias", '{"999": 1}'), "logit_bias names token 999"),
        (("a", "--spec-length", "0"), "--spec-length 0"),
        (("a", "--speculative-decoding"), "needs --draft-model"),
        (("a", "--speculative-config", "{"), "not JSON"),
        (("a", "--speculative-config", '{"method": "ngrm"}'), "did you mean 'ngram'"),
        (("a", "--no-speculation", "--spec-length", "3"), "--no-speculation cannot be combined"),
        (
            ("a", "--speculative-config", "{}", "--spec-length", "3"),
            "--speculative-config cannot be combined",
        ),
        (
            ("a", "--speculative-config", '{"method": "draft_model"}'),
            'give it beside "method", or --draft-model in place of --speculative-config.',
        ),
        (
            ("a", "--speculative-config", '{"method": "eagle3"}'),
            'for this target; name the folder of one in "model".',
        ),
        (
            ("a", "--speculative-config", '{"method": "phrases"}'),
            'name the folder of one in "model" (forerun train --kind phrases writes it).',
        ),
        (("a", "--draft-model", "no-such-model"), "no-such-model"),
        (("a", "--json", "--trace"), "choose one"),
        (("a", "--max-model-len", "99999"), "max_model_len=99999"),
        (("a" * 300,), "shorten it"),
        (("a" * 200, "--max-tokens", "57"), "maximum context length is 256 tokens"),
        (("a", "--kv-cache-memory", "much"), "kv_cache_memory='much'"),
        (("a", "--kv-cache-memory", "1KB"), "holds nothing"),
        (("a", "--kv-cache-backend", "slots"), "did you mean 'slotted'"),
        (("a", "--chat-template", "/no/such/file"), "cannot be read"),
        (("a", "--no-such-option"), "--no-such-option"),
    ],
)
def test_mistakes_are_one_sentence(run: Any, args: tuple[str, ...], why: str) -> None:
    refused(run("generate", *args), why)


def test_an_unknown_model_is_one_sentence() -> None:
    refused(CliRunner().invoke(app, ["generate", "a", "-m", "smollm3"]), "smollm3")


def test_a_conversation(run: Any) -> None:
    lines = "abc\n\n/reset\nabc\n/bye\n"
    result = run("chat", "--max-tokens", "4", "--system", "be kind", stdin=lines)
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert first == second, "after /reset the same question has the same answer"


def test_a_conversation_shows_no_logprobs(run: Any) -> None:
    refused(run("chat", "--logprobs", "2", stdin="abc\n"), "--logprobs are for generate --json")


def test_special_tokens_that_are_shown_are_no_part_of_the_conversation(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    apply_chat_template = Tokenizer.apply_chat_template

    def noted(tokenizer: Tokenizer, messages: Any, *options: Any) -> str:
        asked.append([message["content"] for message in messages])
        return apply_chat_template(tokenizer, messages, *options)

    monkeypatch.setattr(Tokenizer, "apply_chat_template", noted)
    a_end = ("--allowed-token-id", "0", "--allowed-token-id", "30", "--logit-bias", '{"30": 99}')
    shown = ("--keep-special", "--include-stop", "--min-tokens", "3")
    result = run("chat", *a_end, *shown, stdin="abc\nde\n")
    assert result.stdout.count(f"aaa{EOS}") == 2
    assert asked == [["abc"], ["abc", "aaa", "de"]]


def test_a_conversation_that_grows_too_long_says_so(run: Any) -> None:
    result = run("chat", "--max-tokens", "4", stdin="a" * 300 + "\nabc\n")
    assert result.exit_code == 0, result.output
    assert "/reset" in result.stderr


def test_a_command_that_does_not_exist_is_not_sent_to_the_model(run: Any) -> None:
    result = run("chat", "--max-tokens", "4", stdin="/help\n/bye\n")
    assert result.exit_code == 0, result.output
    assert "unknown command /help; /reset starts over, /bye leaves." in result.stderr
    assert "target passes" not in result.stderr


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_a_model_goes_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints exceptions of finalizers and goes on; ^C must still end the command."""
    gone = list[str]()

    class Model:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)
            gone.append("whole")

    @takes()
    def command() -> None:
        keep(Model())

    unraisable = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with pytest.raises(KeyboardInterrupt):
        command()
    assert gone == ["whole"]
    assert not unraisable


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such terminals")
@pytest.mark.usefixtures("interruptible")  # a child inherits an ignored SIGINT
def test_an_interrupt_ends_an_answer_and_not_the_conversation(tmp_path: Path) -> None:
    import pty

    write_tiny_model(tmp_path, max_len=8192, num_layers=1)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "forerun", "chat", "-m", str(tmp_path), "--ignore-eos"]
    command += ["--kernels", "reference", "--max-tokens", "8000"]
    env = {**os.environ, "TERM": "dumb"}  # a dumb terminal gets plain text only
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as chat:
        os.close(theirs)

        def read_until(is_enough: Callable[[bytes], bool]) -> None:
            shown = b""
            while not is_enough(shown):
                assert select.select([ours], [], [], 60)[0], shown
                shown += os.read(ours, 4096)

        try:
            read_until(lambda shown: shown.endswith(b"> "))
            for _ in range(2):
                os.write(ours, b"abc\n")
                read_until(lambda shown: len(shown) > 100)  # the answer has begun
                os.kill(chat.pid, signal.SIGINT)
                read_until(lambda shown: shown.endswith(b"\n> "))
            os.write(ours, b"/bye\n")
            assert chat.wait(60) == 0
        finally:
            chat.kill()
            os.close(ours)


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2_path")
def test_the_demo_shows_the_same_tokens_in_fewer_passes() -> None:
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    found = re.findall(r"identical tokens, (\d+) target passes instead of (\d+)", result.stdout)
    assert len(found) == 2
    assert 2 * int(found[0][0]) < int(found[0][1])  # most of a corrected letter is copied
