"""Conversations with a model that reasons first: from Python, and on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forerun.cli import app
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.types import SamplingParams, StructuredOutputsParams
from tests.tiny_model import JSON_LETTERS

TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}: {% if m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}a: {% if enable_thinking is false %}<think></think>"
    "{% elif enable_thinking %}<think>\n{% endif %}{% endif %}"
)
CLOSE = len(JSON_LETTERS) + 1
ASKED = [{"role": "user", "content": "which pet?"}]
PARAMS = SamplingParams(max_tokens=40, seed=1, logit_bias={CLOSE: 4.0}, ignore_eos=True)
FITTING = PARAMS.with_(structured_outputs=StructuredOutputsParams(regex="[0-9]{3}"))


@pytest.fixture(scope="module")
def llm(tiny_reasoning_path: Path) -> LLM:
    return LLM(tiny_reasoning_path, chat_template=TEMPLATE, num_threads=1)


def test_answers_are_read(llm: LLM) -> None:
    for seed in range(3):
        (output,) = llm.chat(ASKED, PARAMS.with_(seed=seed), enable_thinking=True)[0].outputs
        before = output.text.partition("</think>")[0].strip()
        assert output.reasoning == (before or None)
    (output,) = llm.chat(ASKED, PARAMS, enable_thinking=False)[0].outputs
    assert output.reasoning is None


def test_what_is_asked_for_comes_behind_it(llm: LLM) -> None:
    (output,) = llm.chat(ASKED, FITTING, enable_thinking=True)[0].outputs
    assert re.fullmatch(r"[^\0]*</think>\s?[0-9]{3}", output.text)
    (output,) = llm.chat(ASKED, FITTING, enable_thinking=False)[0].outputs
    assert re.fullmatch("[0-9]{3}", output.text)
    again = [*ASKED, {"role": "assistant", "content": "<think>so it"}]
    (output,) = llm.chat(again, FITTING, continue_final_message=True)[0].outputs
    assert re.fullmatch(r"[^\0]*</think>\s?[0-9]{3}", output.text)
    (plain,) = llm.with_speculation(None).chat(again, FITTING, continue_final_message=True)
    assert plain.outputs[0].token_ids == output.token_ids


def test_without_a_parser_it_is_part_of_the_answer(tiny_reasoning_path: Path) -> None:
    options: dict[str, Any] = {"chat_template": TEMPLATE, "num_threads": 1}
    llm = LLM(tiny_reasoning_path, reasoning_parser="none", **options)
    (output,) = llm.chat(ASKED, FITTING, enable_thinking=True)[0].outputs
    assert output.reasoning is None
    assert re.fullmatch("[0-9]{3}", output.text)
    with pytest.raises(InvalidOption, match="reasoning_parser 'qwen'; did you mean 'qwen3'"):
        LLM(tiny_reasoning_path, reasoning_parser="qwen", **options)


@pytest.fixture
def options(tiny_reasoning_path: Path, tmp_path: Path) -> tuple[str, ...]:
    template = tmp_path / "chat.jinja"
    template.write_text("{% set enable_thinking = true %}" + TEMPLATE)
    biased = ("--logit-bias", json.dumps({str(CLOSE): 4}), "--temperature", "1", "--seed", "1")
    model = ("-m", str(tiny_reasoning_path), "--chat-template", str(template))
    return (*model, *biased, "--ignore-eos", "--max-tokens", "40")


def test_the_command_line_knows_of_it(options: tuple[str, ...]) -> None:
    asked = ("generate", "which pet?", "--chat", "--json", "--regex", "[0-9]{3}", *options)
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert re.fullmatch(r"[^\0]*</think>\s?[0-9]{3}", answer["text"])
    assert answer["reasoning"] == answer["text"].partition("</think>")[0].strip()


def test_a_conversation_goes_on_with_what_was_said(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from forerun.replies import Conversations

    heard: list[Any] = []
    ask = Conversations.ask

    def noted(self: Conversations, messages: Any) -> Any:
        heard.append(list(messages))
        return ask(self, messages)

    monkeypatch.setattr(Conversations, "ask", noted)
    result = CliRunner().invoke(app, ["chat", "--regex", "[0-9]{3}", *options], input="a\nb\n")
    assert result.exit_code == 0, result.output
    (_, said, _) = heard[1]
    assert re.fullmatch("[0-9]{3}", said["content"])
    assert said["reasoning_content"]
    assert said["reasoning_content"] in result.stdout
