"""What tools are, which of them may be called, and how models are told of them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from forerun.engine_config import KNOWN_NAMES
from forerun.errors import InvalidGrammar, InvalidOption
from forerun.grammars import Grammars
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.text.conversation import conversation_text
from forerun.models.text.tokenizer import Tokenizer
from forerun.tools import FORMATS, CallBegun, Calling, Tool, Toolbox, ToolCall, ToolChoice, Words
from forerun.types import SamplingParams, StructuredOutputsParams
from tests.tiny_model import JSON_LETTERS, write_tiny_model

# Chat templates of model families, shortened to what matters here.
TEMPLATES = {
    "hermes": "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
    "{{ m.content }}{% for c in m.tool_calls %}<tool_call>\n{{ c.function.arguments | tojson }}"
    "\n</tool_call>{% endfor %}{% endfor %}",
    "llama3_json": '{% if tools %}{"name": name, "parameters": values}{% endif %}'
    "{% for m in messages %}{{ m.content }}{% endfor %}",
    "mistral": "{% if tools %}[AVAILABLE_TOOLS]{% endif %}"
    '{% for m in messages %}{{ m.content }}{% if m.tool_calls %}{{ "[TOOL_CALLS] [" }}{% endif %}'
    "{% endfor %}",
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}},
    "required": ["city"],
    "additionalProperties": False,
}


def tool(name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": CITY, **more}}


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}}
    return found


@pytest.fixture(scope="module")
def tokenizer(tiny_json_path: Path) -> Tokenizer:
    return load_tokenizer(open_checkpoint(tiny_json_path, None))


def toolbox(
    tokenizer: Tokenizer, template: str | None = None, parser: str | None = None
) -> Toolbox:
    if template is not None:
        tokenizer = tokenizer.with_chat_template(template)
    return Toolbox(tokenizer, Grammars(tokenizer), parser)


def calling(tokenizer: Tokenizer, *tools: Any, choice: Any = "auto", **options: Any) -> Calling:
    found = toolbox(tokenizer).calling(list(tools), choice, **options)
    assert found is not None
    return found


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_shows_how_calls_are_written(tokenizer: Tokenizer, name: str) -> None:
    assert toolbox(tokenizer, TEMPLATES[name]).form.name == name
    for parser in FORMATS:
        assert toolbox(tokenizer, TEMPLATES[name], parser).form.name == parser


def test_a_template_that_nobody_knows_needs_a_word(tokenizer: Tokenizer) -> None:
    for template in (
        "{{ tools }}{{ messages }}",
        "{{ tools }}<tool_call><function=a>",
        "{{ tools }}[TOOL_CALLS]a[ARGS]",
    ):
        with pytest.raises(InvalidOption, match="tool_call_parser: hermes, llama3_json, mistral"):
            _ = toolbox(tokenizer, template).form
        assert toolbox(tokenizer, template).calling([]) is None, "unless nobody asks"
        assert toolbox(tokenizer, template, "hermes").form == FORMATS["hermes"]
    with pytest.raises(InvalidOption, match="did you mean 'hermes'"):
        _ = toolbox(tokenizer, parser="hermas").form


def test_forms_write_as_their_models_do() -> None:
    calls = [("a", '{"b": 1}'), ("c", "{}")]
    written = {
        name: form.written(calls[: 1 if name == "llama3_json" else 2])
        for name, form in FORMATS.items()
    }
    assert written == {
        "hermes": '<tool_call>\n{"name": "a", "arguments": {"b": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "c", "arguments": {}}\n</tool_call>',
        "llama3_json": '{"name": "a", "parameters": {"b": 1}}',
        "mistral": '[TOOL_CALLS][{"name": "a", "arguments": {"b": 1}}, '
        '{"name": "c", "arguments": {}}]',
    }


def binds(tokenizer: Tokenizer, found: Calling, text: str) -> bool:
    grammar = Grammars(tokenizer).of(found.structure)
    assert grammar is not None
    return grammar.binds(tokenizer.encode(text, add_special=False))


def fits(tokenizer: Tokenizer, found: Calling, text: str) -> bool:
    """Whether the whole text fits the grammar of these calls, from the first trigger on."""
    wanted = found.structure
    grammar = Grammars(tokenizer).of(wanted, shows_special=True)
    assert grammar is not None
    tokens = tokenizer.encode(text, add_special=False)
    return grammar.num_fitting([], tokens) == len(tokens) and (
        not grammar.binds(tokens)
        or grammar.is_over(tokens)
        or bool(
            grammar.allowed_bits(tokens)[tokenizer.eos_ids[0] // 8] >> tokenizer.eos_ids[0] % 8 & 1
        )
    )


def test_what_an_answer_may_be(tokenizer: Tokenizer) -> None:
    one = FORMATS["hermes"].written([("weather", '{"city": "rom"}')])
    two = FORMATS["hermes"].written([("weather", '{"city": "rom"}'), ("time", "{}")])
    both = tool(), {"function": {"name": "time"}}
    free = calling(tokenizer, *both)
    for text in ("", "no calls.", one, "a word\n" + one, two):
        assert fits(tokenizer, free, text), text
    for text in (one.replace("city", "town"), one.replace('"rom"', "1"), one + "words", one[:-1]):
        assert not fits(tokenizer, free, text), text
    must = calling(tokenizer, *both, choice="required")
    assert fits(tokenizer, must, two)
    assert not fits(tokenizer, must, "no calls.")
    assert not fits(tokenizer, must, "a word\n" + one)
    named = calling(tokenizer, *both, choice={"type": "function", "function": {"name": "time"}})
    assert fits(tokenizer, named, FORMATS["hermes"].written([("time", "{}")]))
    assert not fits(tokenizer, named, one)
    twice = FORMATS["hermes"].written([("time", "{}")] * 2)
    assert fits(tokenizer, must, twice)
    assert not fits(tokenizer, named, twice), "one call is what was asked for"
    once = calling(tokenizer, *both, repeats=False)
    assert fits(tokenizer, once, one)
    assert not fits(tokenizer, once, two)


def test_calls_as_json_alone(tmp_path: Path) -> None:
    """Models that have not quite learnt the marks write calls so when a call is optional."""
    path = write_tiny_model(tmp_path / "target", seed=0, letters=JSON_LETTERS + "`")
    tokenizer = load_tokenizer(open_checkpoint(path, None))
    line = '{"name": "weather", "arguments": {"city": "rom"}}'
    lines = json.dumps({"name": "weather", "arguments": {"city": "rom"}}, indent=2)
    wide = json.dumps({"name": "weather", "arguments": {"city": "rom"}}, indent=4)
    free, must = calling(tokenizer, tool()), calling(tokenizer, tool(), choice="required")
    answer = StructuredOutputsParams(json={"type": "array", "items": {"type": "integer"}})
    schema = calling(tokenizer, tool(), answer=answer)
    for text in (line, lines, wide):
        for one in (
            *(text, f"I look.\n\n{text}"),
            *(f"```json\n{text}\n```", f"I look.\n```json\n{text}\n```", f"```\n{text}\n```"),
        ):
            assert fits(tokenizer, free, one), one
            assert not fits(tokenizer, free, one + "\nwords"), one
            assert not fits(tokenizer, free, one.replace('"rom"', "1")), one
            assert not fits(tokenizer, free, one.replace("city", "town")), one
            assert free.reader().read(one, is_last=True)[-2] == CallBegun("weather")
            for strict in (must, schema):
                assert not fits(tokenizer, strict, one), one
        for words in (
            f"```json\n{text.replace('weather', 'other')}\n```",
            f"```json\n{text.replace('arguments', 'version')}\n```",
            text.replace("arguments", "version"),
            '[{"name": "weather"}]',
            '{"name": "weather"}',
            f"[{text}, {text}]",
            f"I look.\n{text}",
            f"`{text}`",
            "```json\n" + json.dumps([json.loads(text)] * 2, indent=2) + "\n```",
        ):
            assert fits(tokenizer, free, words + " and more"), words
            told = free.reader().read(words, is_last=True)
            assert "".join(piece.text for piece in told if isinstance(piece, Words)) == words
            assert len(told) == sum(isinstance(piece, Words) for piece in told)
        begun = text[: text.index(":", text.index("arguments")) + 1]
        assert binds(tokenizer, free, begun), "before the space, which may be the next token's"
        assert not binds(tokenizer, free, begun[:-1])
    many = calling(tokenizer, tool(), *(tool(f"weather_{idx}") for idx in range(200)))
    assert fits(tokenizer, many, line + "words"), "too many to have other ways"
    assert many.reader().read(line, is_last=True) == [Words(line)]


def test_a_schema_beside_tools(tokenizer: Tokenizer) -> None:
    """Words must fit the schema; calls need not."""
    answer = StructuredOutputsParams(json={"type": "array", "items": {"type": "integer"}})
    found = calling(tokenizer, tool(), answer=answer)
    call = FORMATS["hermes"].written([("weather", '{"city": "rom"}')])
    assert fits(tokenizer, found, "[1, 2]")
    assert fits(tokenizer, found, call)
    assert not fits(tokenizer, found, "words")
    for choice in ("auto", "required"):
        for bad in (
            StructuredOutputsParams(regex="a"),
            StructuredOutputsParams(json={}, disable_any_whitespace=True),
            StructuredOutputsParams(json={}, whitespace_pattern=" "),
        ):
            with pytest.raises(InvalidOption, match="only be json or json_object"):
                calling(tokenizer, tool(), choice=choice, answer=bad)
    with pytest.raises(InvalidOption, match="calls of llama3_json, which are JSON as well"):
        toolbox(tokenizer, parser="llama3_json").calling([tool()], "auto", None, answer)


def test_a_schema_that_cannot_be_followed(tokenizer: Tokenizer) -> None:
    """A strict tool is refused; else only the odd keyword is left out, or all if need be."""
    odd = {
        "type": ["object", "null"],
        "properties": {
            "a": {"not": {"type": "string"}},
            "title": {"type": "integer", "description": "a" * 200_000, "nullable": True},
        },
        "required": ["title"],
    }
    worse = {"type": "object", "properties": {"a": {"pattern": "("}}}
    tools = tool(), tool("odd", parameters=odd), tool("worse", parameters=worse)
    found = calling(tokenizer, *tools)

    def is_fit(name: str, arguments: str) -> bool:
        return fits(tokenizer, found, FORMATS["hermes"].written([(name, arguments)]))

    for arguments in ('{"a": "b", "title": 1}', '{"title": null, "b": []}'):
        assert is_fit("odd", arguments)
    for arguments in ("{}", '{"title": "a"}'):
        assert not is_fit("odd", arguments)
    assert is_fit("worse", '{"a": 1}')
    assert not is_fit("weather", '{"a": 1}')
    with pytest.raises(InvalidGrammar, match="the parameters of tool 'odd'"):
        calling(tokenizer, tool(), tool("odd", parameters=odd, strict=True))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([{"type": "web_search"}], "is no tool"),
        (["weather"], "is no tool"),
        ({"a": 1}, "no list"),
        ([{"function": {"name": "a b"}}], "cannot be called 'a b'"),
        ([{"function": {"name": "a" * 131}}], "cannot be called"),
        ([{"function": {}}], "cannot be called None"),
        ([tool(parameters=[1])], "no JSON schema"),
        ([tool(parameters={"type": "string"})], "takes an object"),
        ([tool(parameters={"a": float("nan")})], "no JSON schema"),
        ([tool(parameters={"type": ["string"]})], "takes an object"),
        ([tool(parameters=nested(20_000))], "nested too deep"),
        ([tool(description=1)], "no text"),
        ([tool(), tool()], "two tools are called 'weather'"),
        ([tool(f"t{idx}") for idx in range(600)], "600 tools are more than 512"),
    ],
)
def test_what_is_no_tool(tokenizer: Tokenizer, given: Any, sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        toolbox(tokenizer).calling(given)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("always", "is not allowed"),
        (3, "is not allowed"),
        ({"type": "function"}, "is not allowed"),
        ({"type": "function", "name": "wether"}, "did you mean 'weather'"),
        ({"type": "allowed_tools", "mode": "none", "tools": []}, "is not allowed"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "is not allowed"),
    ],
)
def test_what_is_no_choice(tokenizer: Tokenizer, choice: Any, sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        toolbox(tokenizer).calling([tool()], choice)


def test_a_call_needs_tools(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidOption, match="asks for a call, and there are no tools"):
        toolbox(tokenizer).calling([], "required")
    assert toolbox(tokenizer).calling(None, "auto") is None
    assert toolbox(tokenizer).calling([tool()], "none") is None


def test_choices_in_the_words_of_both_apis() -> None:
    chat = {"type": "function", "function": {"name": "a"}}
    flat = {"type": "function", "name": "a"}
    assert ToolChoice.of(chat) == ToolChoice.of(flat) == ToolChoice("required", ("a",), True)
    some = {"mode": "auto", "tools": [chat]}
    assert ToolChoice.of({"type": "allowed_tools", "allowed_tools": some}).names == ("a",)
    assert ToolChoice.of({"type": "allowed_tools", **some}) == ToolChoice("auto", ("a",))
    tools = [Tool("a"), Tool("b")]
    assert ToolChoice("auto", ("b",)).among(tools) == [Tool("b")]
    assert ToolChoice("none").among(tools) == []


def asked(call_arguments: Any = '{"city": "rom"}') -> list[dict[str, Any]]:
    function = {"name": "weather", "arguments": call_arguments}
    return [
        {"role": "user", "content": "how is it?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": function}]},
        {"role": "tool", "tool_call_id": "x", "content": "rain"},
    ]


def prompt(box: Toolbox, tokenizer: Tokenizer, found: Calling | None, messages: Any) -> str:
    return conversation_text(tokenizer, *box.told(messages, found.shown if found else (), {}))


def test_a_template_with_tools_is_given_them(tokenizer: Tokenizer) -> None:
    with_tools = tokenizer.with_chat_template(TEMPLATES["hermes"])
    box = toolbox(tokenizer, TEMPLATES["hermes"])
    text = prompt(box, with_tools, box.calling([tool(strict=True)]), asked())
    assert text.startswith(json.dumps(tool()))
    assert '<tool_call>\n{"city": "rom"}\n</tool_call>rain' in text, "arguments are values there"
    assert json.dumps(tool()) not in prompt(box, with_tools, None, asked())


def test_a_template_without_tools_is_told_in_words(tokenizer: Tokenizer) -> None:
    box = toolbox(tokenizer, "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    plain = tokenizer.with_chat_template(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    call = FORMATS["hermes"].written([("weather", '{"city": "rom"}')])
    found = box.calling([tool(description="Rain or sun.")])
    text = prompt(box, plain, found, asked())
    assert text.startswith("[system]")
    assert "Rain or sun." in text
    rest = f"[user]how is it?[assistant]{call}[user]<tool_response>\nrain\n</tool_response>"
    assert text.endswith(rest)
    own = [{"role": "system", "content": "Be brief."}, *asked()]
    assert prompt(box, plain, found, own).startswith("[system]Be brief.\n\nYou can call")
    assert prompt(box, plain, None, asked()) == rest
    only = [{"role": "user", "content": "a"}]
    assert prompt(box, plain, None, only) == "[user]a"


def test_calls_that_are_none(tokenizer: Tokenizer) -> None:
    for calls, sentence in ((5, "is no list"), ([5], "no call of a tool"), ([{}], "no call")):
        message: dict[str, Any] = {"role": "assistant", "tool_calls": calls}
        with pytest.raises(InvalidOption, match=sentence):
            toolbox(tokenizer).told([message], (), {})
    with pytest.raises(InvalidOption, match="neither a text nor an object"):
        toolbox(tokenizer).told(asked(5), (), {})


@pytest.mark.parametrize("arguments", ['{"city": "ro', "", None, "[1]", '{"a":' + "[" * 3000])
def test_arguments_that_were_cut_off_come_back(tokenizer: Tokenizer, arguments: Any) -> None:
    """Incomplete arguments are shown as they came; a template that writes JSON shows a string."""
    box = toolbox(tokenizer, TEMPLATES["hermes"])
    with_tools = tokenizer.with_chat_template(TEMPLATES["hermes"])
    written = json.dumps(arguments or {})
    assert f"<tool_call>\n{written}\n</tool_call>" in prompt(
        box, with_tools, None, asked(arguments)
    )
    plain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    text = prompt(
        toolbox(tokenizer, plain), tokenizer.with_chat_template(plain), None, asked(arguments)
    )
    assert f'"arguments": {arguments or "{}"}}}' in text


def test_results_of_several_calls_are_one_message(tokenizer: Tokenizer) -> None:
    """Some templates require that user and assistant messages alternate."""
    turns = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('take turns') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    box, plain = toolbox(tokenizer, turns), tokenizer.with_chat_template(turns)
    both = [*asked(), {"role": "tool", "tool_call_id": "y", "content": [text_part("sun")]}]
    text = prompt(box, plain, box.calling([tool()]), both)
    assert text.startswith("[user]You can call functions."), "no message of the system"
    assert "\n\nhow is it?[assistant]" in text
    told = "<tool_response>\nrain\n</tool_response>\n<tool_response>\nsun\n</tool_response>"
    assert text.endswith(f"[user]{told}")


def test_words_beside_calls_are_shown(tokenizer: Tokenizer) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    first, call, result = asked()
    messages = [first, {**call, "content": "Let me see."}, result]
    box = toolbox(tokenizer, template)
    text = prompt(box, tokenizer.with_chat_template(template), None, messages)
    assert "[assistant]Let me see.\n<tool_call>\n" in text
    alone = [{"role": "tool", "content": "rain"}]
    assert "<tool_response>" in prompt(box, tokenizer.with_chat_template(template), None, alone)


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def test_a_choice_of_none_needs_no_known_template(tokenizer: Tokenizer) -> None:
    assert toolbox(tokenizer, "{{ tools }}{{ messages }}").calling([tool()], "none") is None
    with pytest.raises(InvalidOption, match="parallel_tool_calls='no'"):
        toolbox(tokenizer).calling([tool()], "auto", "no")  # type: ignore[arg-type]


def test_marks_that_are_special_tokens(tokenizer: Tokenizer) -> None:
    """Calls are read from text, which usually omits special tokens: here it must keep them."""
    backend = tokenizers.Tokenizer.from_str(tokenizer._backend.to_str())
    assert not toolbox(tokenizer).form.is_special
    backend.add_special_tokens(["<tool_call>"])
    mark = backend.token_to_id("<tool_call>") or 0
    special = tokenizer.special_ids | {mark}
    traits = replace(tokenizer._traits, special_ids=special, added_ids=frozenset({mark}))
    marked = Tokenizer(backend, traits)
    found = calling(marked, tool())
    assert found.form.is_special
    assert not found.params(SamplingParams()).skip_special_tokens
    text = found.form.written([("weather", '{"city": "rom"}')])
    assert marked.encode(text, add_special=False)[0] == mark
    assert fits(marked, found, text)
    must = calling(marked, tool(), choice="required")
    grammar = Grammars(marked).of(must.structure, shows_special=True)
    assert grammar is not None
    assert int.from_bytes(grammar.allowed_bits([]), "little") == 1 << mark
    assert calling(tokenizer, tool()).params(SamplingParams()).skip_special_tokens


@pytest.mark.parametrize("opens", ["[TOOL_CALLS] [", "[TOOL_CALLS]["])
def test_mistrals_mark_alone_binds(tokenizer: Tokenizer, opens: str) -> None:
    template = "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}{# " + opens + " #}"
    backend = tokenizers.Tokenizer.from_str(tokenizer._backend.to_str())
    backend.add_special_tokens(["[TOOL_CALLS]"])
    mark = backend.token_to_id("[TOOL_CALLS]") or 0
    special = tokenizer.special_ids | {mark}
    traits = replace(tokenizer._traits, special_ids=special, added_ids=frozenset({mark}))
    marked = Tokenizer(backend, replace(traits, chat_template=template))
    found = toolbox(marked).calling([tool()])
    assert found is not None
    assert found.form.is_special
    assert found.form.opens == opens
    grammar = Grammars(marked).of(found.structure, shows_special=True)
    assert grammar is not None
    assert grammar.binds([mark])
    assert not grammar.binds([])


def test_names_of_parsers_are_the_same_everywhere() -> None:
    assert (None, *FORMATS) == KNOWN_NAMES["tool_call_parser"]


def test_numbers_beyond_floats_are_the_largest_one() -> None:
    """Schemas allow such numbers, but JSON has no infinity to send on."""
    digits = "9" * 5000
    call = ToolCall("count", f'{{"a": 1e400, "b": -1e400, "c": {digits}, "d": [7, 0.5]}}')
    most = sys.float_info.max
    assert call.values == {"a": most, "b": -most, "c": most, "d": [7, 0.5]}


def test_calls_go_back_as_they_came() -> None:
    call = ToolCall("weather", '{"city": "rom"}')
    assert call.values == {"city": "rom"}
    assert call.as_dict()["function"] == {"name": "weather", "arguments": '{"city": "rom"}'}
    assert call.id.startswith("call_")
    assert call.id != ToolCall("weather", "{}").id
    mistral = Calling(FORMATS["mistral"], [], [Tool("a")], None)  # type: ignore[arg-type]
    assert len(mistral.fresh_id()) == 9
