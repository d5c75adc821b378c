"""What each field of chat and completions does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.serving import Running
from tests.server.test_routes import CHAT, error_of

LONG: dict[str, Any] = {"max_tokens": 40, "seed": 5, "ignore_eos": True}


def texts(answer: dict[str, Any]) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


def test_lists_of_prompts_and_ids(server: Running) -> None:
    both = server.ask("/v1/completions", prompt=["abc", "hello"], n=2, **LONG)
    ids = [server.ask("/tokenize", prompt=text)["tokens"] for text in ("abc", "hello")]
    as_ids = server.ask("/v1/completions", prompt=ids, n=2, **LONG)
    assert texts(both) == texts(as_ids)
    assert [choice["index"] for choice in both["choices"]] == [0, 1, 2, 3]
    assert len(set(texts(both))) == 4
    first = server.ask("/v1/completions", prompt=ids[0], n=1, **LONG)
    assert texts(first) == [texts(both)[0]]  # choice 0 of n equals n = 1
    assert both["usage"]["prompt_tokens"] == 8
    assert both["usage"]["completion_tokens"] == 160


def test_the_seed_that_was_drawn_comes_back(server: Running) -> None:
    first = server.ask("/v1/completions", prompt="abc", max_tokens=30, ignore_eos=True)
    seed = first["usage"]["forerun"]["seed"]
    again = server.ask("/v1/completions", prompt="abc", **{**LONG, "max_tokens": 30, "seed": seed})
    assert texts(first) == texts(again)
    for more in ({}, {"seed": -1}):  # vLLM and llama-server take -1 for no seed
        other = server.ask("/v1/completions", prompt="abc", max_tokens=30, ignore_eos=True, **more)
        assert other["usage"]["forerun"]["seed"] not in (seed, -1)


def test_equal_prompts_of_a_list_get_samples_of_their_own(server: Running) -> None:
    asked = {"prompt": ["abc"] * 3, "max_tokens": 30, "ignore_eos": True}
    drawn = server.ask("/v1/completions", **asked)
    assert len(set(texts(drawn))) == 3
    seed = drawn["usage"]["forerun"]["seed"]
    assert texts(server.ask("/v1/completions", **asked, seed=seed)) == texts(drawn)
    both = server.ask("/v1/completions", **asked, seed=seed, n=2)
    assert texts(both)[::2] == texts(drawn)
    assert len(set(texts(both))) == 6


def test_echo_puts_the_prompt_and_its_logprobs_first(server: Running) -> None:
    asked = {"prompt": "abc hello", **LONG, "max_tokens": 4, "logprobs": 2}
    plain = server.ask("/v1/completions", **asked)["choices"][0]
    echoed = server.ask("/v1/completions", **asked, echo=True)["choices"][0]
    assert echoed["text"] == "abc hello" + plain["text"]
    logprobs = echoed["logprobs"]
    assert logprobs["tokens"] == list("abc hello") + plain["logprobs"]["tokens"]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["token_logprobs"][9:] == plain["logprobs"]["token_logprobs"]
    assert logprobs["text_offset"] == list(range(13))
    streamed = server.stream("/v1/completions", **asked, echo=True)
    pieces = [json.loads(line)["choices"][0] for line in streamed[:-1]]
    assert "".join(piece["text"] for piece in pieces) == echoed["text"]
    values = [value for piece in pieces for value in piece["logprobs"]["token_logprobs"]]
    assert values == logprobs["token_logprobs"]


def test_an_echo_is_the_prompt_as_it_was_sent(server: Running) -> None:
    """The echo keeps the prompt's special tokens, which an answer leaves out."""
    prompt = "<|start|>user hello<|end|>"
    asked = {"prompt": prompt, **LONG, "max_tokens": 2, "logprobs": 0, "echo": True}
    answer = server.ask("/v1/completions", **asked, return_token_ids=True)["choices"][0]
    assert answer["text"].startswith(prompt)
    tokens, offsets = answer["logprobs"]["tokens"], answer["logprobs"]["text_offset"]
    for token, start in zip(tokens[:-2], offsets, strict=False):
        assert prompt[start:].startswith(token)
    by_ids = server.ask("/v1/completions", **{**asked, "prompt": answer["prompt_token_ids"]})
    assert by_ids["choices"][0]["text"] == answer["text"]
    cut = server.ask("/v1/completions", **asked, truncate_prompt_tokens=3)["choices"][0]
    assert cut["text"].startswith("lo<|end|>")


def test_all_choices_echo_their_own_prompt(server: Running) -> None:
    asked = {"prompt": ["abc hello", "hello"], **LONG, "max_tokens": 2, "n": 2, "logprobs": 1}
    choices = server.ask("/v1/completions", **asked, echo=True)["choices"]
    plain = server.ask("/v1/completions", **asked)["choices"]
    for choice, own in zip(choices, plain, strict=True):
        prompt = asked["prompt"][choice["index"] // 2]
        assert choice["text"] == prompt + own["text"]
        found = choice["logprobs"]
        assert found["tokens"] == [*prompt, *own["logprobs"]["tokens"]]
        assert found["token_logprobs"][len(prompt) :] == own["logprobs"]["token_logprobs"]
        assert found["text_offset"] == list(range(len(found["tokens"])))
    streamed = server.stream("/v1/completions", **asked, echo=True)
    told = [choice for line in streamed[:-1] for choice in json.loads(line)["choices"]]
    for choice in choices:
        pieces = [piece for piece in told if piece["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        names = [name for piece in pieces for name in piece["logprobs"]["tokens"]]
        assert names == choice["logprobs"]["tokens"]


def test_an_answer_of_unsaid_length_takes_the_room_there_is(server: Running) -> None:
    (model,) = server.client.get("/v1/models").json()["data"]
    room = model["max_model_len"]
    answer = server.ask("/v1/completions", prompt="a" * (room - 3), ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 3
    both = server.ask("/v1/completions", prompt=["a", "a" * (room - 3)], ignore_eos=True)
    assert both["usage"]["completion_tokens"] == 16 + 3  # each has all the room there is
    asked = {"prompt": "a" * (2 * room), "truncate_prompt_tokens": -1, "ignore_eos": True}
    usage = server.ask("/v1/completions", **asked)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (room - 16, 16)
    assert server.ask("/v1/completions", prompt="a", ignore_eos=True)["usage"][
        "completion_tokens"
    ] == min(16, room - 1)


@pytest.mark.parametrize(
    ("path", "name", "usual"),
    [
        ("/v1/completions", "max_tokens", 16),
        ("/v1/chat/completions", "max_tokens", 64),
        ("/v1/chat/completions", "max_completion_tokens", 64),
        ("/v1/responses", "max_output_tokens", 64),
    ],
)
def test_a_prompt_is_truncated_so_that_its_answer_has_room(
    server: Running, path: str, name: str, usual: int
) -> None:
    (model,) = server.client.get("/v1/models").json()["data"]
    context = model["max_model_len"]
    words = "a" * (2 * context)
    messages = [{"role": "user", "content": words}]
    given = {"/v1/completions": "prompt", "/v1/chat/completions": "messages"}.get(path, "input")
    asked: dict[str, Any] = {given: messages if given == "messages" else words}
    asked |= {"truncate_prompt_tokens": -1, "ignore_eos": True}
    for more, num_tokens in (({}, usual), ({name: 1}, 1), ({name: 100}, 100)):
        usage = server.ask(path, **asked, **more)["usage"]
        found = usage.get("completion_tokens", usage.get("output_tokens"))
        assert (usage["total_tokens"], found) == (context, num_tokens)
    error = error_of(server.post(path, **asked, **{name: context}), 400)
    assert f"lower {name}." in error["message"]


def test_a_response_says_so_in_openais_words(server: Running) -> None:
    (model,) = server.client.get("/v1/models").json()["data"]
    asked = {"input": "a" * (2 * model["max_model_len"]), "max_output_tokens": 3}
    found = server.ask("/v1/responses", **asked, truncation="auto", ignore_eos=True)
    assert found["usage"]["total_tokens"] == model["max_model_len"]
    assert found["truncation"] == "auto"
    error = error_of(server.post("/v1/responses", **asked, truncation="disabled"), 400)
    assert error["code"] == "context_length_exceeded"


def test_tokens_that_only_end_an_answer_cannot_be_all_that_is_allowed(server: Running) -> None:
    (end,) = server.ask("/tokenize", prompt="z", add_special_tokens=False)["tokens"]
    asked = {"prompt": "abc", "allowed_token_ids": [end], "stop_token_ids": [end]}
    refused = server.post("/v1/completions", **asked, min_tokens=1)
    assert "lower min_tokens" in error_of(refused, 400)["message"]
    answer = server.ask("/v1/completions", **asked)["choices"][0]
    assert (answer["finish_reason"], answer["stop_reason"], answer["text"]) == ("stop", end, "")
    shown = server.ask("/v1/completions", **asked, include_stop_str_in_output=True)["choices"][0]
    assert (shown["stop_reason"], shown["text"]) == (end, "z")


def test_a_text_is_scored_without_an_answer(server: Running) -> None:
    """The engine always generates a token; it is neither shown nor counted."""
    asked = {"prompt": ["abc hello", "abc"], **LONG, "logprobs": 2, "echo": True}
    scored = [asked | {"max_tokens": 4}, asked | {"max_tokens": 0, "stop": list("abcdefghijklm")}]
    longer, whole = (server.ask("/v1/completions", **one) for one in scored)
    assert texts(whole) == ["abc hello", "abc"]
    for one, other in zip(whole["choices"], longer["choices"], strict=True):
        values = other["logprobs"]["token_logprobs"][: len(one["text"])]
        assert one["logprobs"]["token_logprobs"] == values
        assert (one["finish_reason"], one["stop_reason"]) == ("length", None)
    lines = server.stream("/v1/completions", **scored[1], stream_options={"include_usage": True})
    chunks = [json.loads(line) for line in lines[:-1]]
    told = {c["index"]: c["text"] for chunk in chunks for c in chunk["choices"]}
    assert told == {0: "abc hello", 1: "abc"}
    for usage in (whole["usage"], chunks[-1]["usage"]):
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (12, 0)
        assert usage["total_tokens"] == 12


def test_offsets_count_the_text_that_is_shown(server: Running) -> None:
    """The offsets count the prompt as it was sent, whatever the answer leaves out."""
    asked = {"prompt": "<|start|>ab<|end|>c", **LONG, "max_tokens": 2, "logprobs": 1, "echo": True}
    starts = [0, 9, 10, 11, 18]
    for skips in (True, False):
        answer = server.ask("/v1/completions", **asked, skip_special_tokens=skips)["choices"][0]
        offsets = answer["logprobs"]["text_offset"]
        assert offsets[:5] == starts
        assert offsets[5] == starts[-1] + 1
        assert all(0 <= at <= len(answer["text"]) for at in offsets)
        lines = server.stream("/v1/completions", **asked, skip_special_tokens=skips)
        pieces = [json.loads(line)["choices"][0]["logprobs"] for line in lines[:-1]]
        assert [at for piece in pieces for at in piece["text_offset"]] == offsets


@pytest.mark.parametrize("num_top", [0, 1, 2])
def test_the_sampled_token_is_among_the_top_ones(server: Running, num_top: int) -> None:
    """As in OpenAI's API: up to one entry more than was asked for."""
    asked = {"prompt": "abc", **LONG, "temperature": 3, "logprobs": num_top}
    logprobs = server.ask("/v1/completions", **asked)["choices"][0]["logprobs"]
    columns = (logprobs[name] for name in ("tokens", "token_logprobs", "top_logprobs"))
    rows = list(zip(*columns, strict=True))
    assert all(top[token] == value for token, value, top in rows)
    assert {len(top) for _, _, top in rows} == ({1} if num_top == 0 else {num_top, num_top + 1})


def test_chat_logprobs_spell_their_tokens(server: Running) -> None:
    answer = server.ask(
        "/v1/chat/completions", messages=CHAT, logprobs=True, top_logprobs=3, **LONG
    )
    choice = answer["choices"][0]
    entries = choice["logprobs"]["content"]
    assert len(entries) == answer["usage"]["completion_tokens"]
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)
    spelled = b"".join(bytes(entry["bytes"]) for entry in entries).decode()
    assert choice["message"]["content"] == spelled
    assert error_of(server.post("/v1/chat/completions", messages=CHAT, top_logprobs=3), 400)


def test_no_likely_tokens_is_nothing_asked(server: Running) -> None:
    for more in ({}, {"logprobs": False}):
        asked = {"messages": CHAT, "max_tokens": 2, "top_logprobs": 0, **more}
        assert server.ask("/v1/chat/completions", **asked)["choices"][0]["logprobs"] is None
    nothing: list[dict[str, Any]] = [
        {"top_logprobs": 0},
        {"include": ["reasoning.encrypted_content"]},
        {"include": []},
    ]
    for body in nothing:
        answer = server.ask("/v1/responses", input="hello", max_output_tokens=2, **body)
        assert answer["output"][0]["content"][0]["logprobs"] == []


@pytest.mark.parametrize("skips", [True, False])
def test_a_special_token_that_the_text_skips_has_no_bytes(server: Running, skips: bool) -> None:
    """It is still listed, both where it ends an answer and among the likeliest."""
    (end,) = server.ask("/tokenize", prompt="<|end|>", add_special_tokens=False)["tokens"]
    asked = {"allowed_token_ids": [end], "ignore_eos": True, "skip_special_tokens": skips}
    chat = {"messages": CHAT, **asked, "logprobs": True, "top_logprobs": 20, "max_tokens": 1}
    whole = server.ask("/v1/chat/completions", **chat)["choices"][0]
    lines = server.stream("/v1/chat/completions", **chat)
    chunks = [json.loads(line)["choices"][0] for line in lines[:-1]]
    streamed = [entry for c in chunks if c["logprobs"] for entry in c["logprobs"]["content"]]
    response = server.ask(
        "/v1/responses", input="hello there", **asked, top_logprobs=20, max_output_tokens=1
    )
    part = response["output"][0]["content"][0]
    for text, entries in (
        (whole["message"]["content"], whole["logprobs"]["content"]),
        (whole["message"]["content"], streamed),
        (part["text"], part["logprobs"]),
    ):
        (entry,) = entries
        expected = b"" if skips else b"<|end|>"
        assert (entry["token"], bytes(entry["bytes"])) == ("<|end|>", expected)
        assert text.encode() == expected
        for other in entry["top_logprobs"]:
            is_special = other["token"] in ("<|start|>", "<|end|>")
            shown = b"" if is_special and skips else other["token"].encode()
            assert bytes(other["bytes"]) == shown


def test_stop_strings_end_the_text_before_them(server: Running) -> None:
    whole = texts(server.ask("/v1/completions", prompt="abc", **LONG))[0]
    stop = whole[10:13]
    expected = whole[: whole.index(stop)]
    for extra, text in (({}, expected), ({"include_stop_str_in_output": True}, expected + stop)):
        answer = server.ask("/v1/completions", prompt="abc", stop=[stop, "~~"], **LONG, **extra)
        (choice,) = answer["choices"]
        assert (choice["text"], choice["finish_reason"]) == (text, "stop")
        assert choice["stop_reason"] == stop
        chunks = server.stream("/v1/completions", prompt="abc", stop=stop, **LONG, **extra)
        pieces = [json.loads(chunk)["choices"][0] for chunk in chunks[:-1]]
        assert "".join(piece["text"] for piece in pieces) == text
        assert [piece["finish_reason"] for piece in pieces if piece["finish_reason"]] == ["stop"]


def test_parts_and_developer_messages_are_what_they_say(server: Running) -> None:
    plain = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi\nthere"}]
    parts = [
        {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
        {"role": "user", "content": [{"type": "text", "text": t} for t in ("hi", "there")]},
    ]
    first, second = (
        server.ask("/v1/chat/completions", messages=m, return_token_ids=True, **LONG)
        for m in (plain, parts)
    )
    assert first["prompt_token_ids"] == second["prompt_token_ids"]
    assert first["choices"][0]["token_ids"] == second["choices"][0]["token_ids"]


def test_a_chat_stream_has_the_ids_that_were_asked_for(server: Running) -> None:
    asked = {"messages": CHAT, "return_token_ids": True, "n": 2, **LONG}
    whole = server.ask("/v1/chat/completions", **asked)
    chunks = [json.loads(line) for line in server.stream("/v1/chat/completions", **asked)[:-1]]
    tokens: list[list[int]] = [[], []]
    for chunk in chunks:
        for choice in chunk["choices"]:
            tokens[choice["index"]] += choice.get("token_ids", [])
    assert tokens == [choice["token_ids"] for choice in whole["choices"]]
    opening = [chunk["prompt_token_ids"] for chunk in chunks if "prompt_token_ids" in chunk]
    assert opening == [whole["prompt_token_ids"]] * 2  # once per choice
    assert chunks[0]["prompt_token_ids"]


@pytest.mark.parametrize(
    "name",
    [
        *("self", "cls", "class", "variables", "given", "source", "loop", "caller", "kwargs"),
        *("range", "dict", "namespace", "raise_exception", "strftime_now", "bos_token", "_"),
    ],
)
def test_variables_of_a_template_may_have_any_name(server: Running, name: str) -> None:
    asked = {"messages": CHAT, "chat_template_kwargs": {name: 1}}
    plain = server.ask("/tokenize", messages=CHAT)
    assert server.ask("/tokenize", **asked) == plain
    server.ask("/v1/chat/completions", **asked, max_tokens=1)


def test_a_final_message_is_continued(server: Running) -> None:
    messages = [*CHAT, {"role": "assistant", "content": "well then"}]
    answer = server.ask(
        "/v1/chat/completions",
        messages=messages,
        continue_final_message=True,
        return_token_ids=True,
        **LONG,
    )
    text = server.ask("/detokenize", tokens=answer["prompt_token_ids"])["prompt"]
    assert text.endswith("<|start|>well then")
    both = {"continue_final_message": True, "add_generation_prompt": True}
    bad: dict[str, Any]
    for bad in (both, {"chat_template_kwargs": {"messages": []}}):
        error = error_of(server.post("/v1/chat/completions", messages=messages, **bad), 400)
        assert error["param"] == next(iter(bad))


@pytest.mark.parametrize("words", ["end", "e", "", "and then. "])
def test_it_is_continued_where_its_words_end(server: Running, words: str) -> None:
    """Also if the words end with what the template appends, <|end|>."""
    answer = server.ask(
        "/v1/chat/completions",
        messages=[*CHAT, {"role": "assistant", "content": words}],
        continue_final_message=True,
        return_token_ids=True,
        max_tokens=1,
    )
    text = server.ask("/detokenize", tokens=answer["prompt_token_ids"])["prompt"]
    assert text.endswith(f"<|end|><|start|>{words}")


def test_usage_in_streams(server: Running) -> None:
    asked = {"messages": CHAT, **LONG, "n": 2}
    whole = server.ask("/v1/chat/completions", **asked)["usage"]
    lines = server.stream("/v1/chat/completions", **asked, stream_options={"include_usage": True})
    chunks = [json.loads(line) for line in lines[:-1]]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert chunks[-1]["usage"][name] == whole[name]
    lines = server.stream(
        "/v1/chat/completions", **asked, stream_options={"continuous_usage_stats": True}
    )
    chunks = [json.loads(line) for line in lines[:-1]]
    for index in range(2):
        of_choice = [c["usage"] for c in chunks if c["choices"][0]["index"] == index]
        counts = [usage["completion_tokens"] for usage in of_choice]
        assert counts == sorted(counts)
        assert (counts[0], counts[-1]) == (1, 40)
        assert {usage["prompt_tokens"] for usage in of_choice} == {whole["prompt_tokens"]}


def test_options_of_a_stream_without_one(server: Running) -> None:
    asked = {"prompt": "a", "stream_options": {"include_usage": True}}
    assert error_of(server.post("/v1/completions", **asked), 400)["param"] == "stream_options"


def test_a_trace_shows_every_round(server: Running) -> None:
    asked = {"prompt": "abcabcabcabc", **LONG, "temperature": 0, "forerun": {"trace": True}}
    asked |= {"speculative": {"method": "suffix"}, "return_token_ids": True}
    answer = server.ask("/v1/completions", **asked)
    rounds = answer["choices"][0]["forerun"]["trace"]
    assert len(rounds) == answer["usage"]["forerun"]["target_passes"]
    emitted = [entry for done in rounds for entry in done["emitted"]]
    assert [entry["token_id"] for entry in emitted] == answer["choices"][0]["token_ids"]
    guessed = [done for done in rounds if done["proposal"]["token_ids"]]
    assert guessed
    assert all(done["drafter"] == "suffix" for done in guessed)
    assert (
        sum(len(d["accepted"]) + len(d["rejected"]) for d in guessed)
        == (answer["usage"]["forerun"]["draft_tokens"])
    )
    chances = [chance for done in guessed for chance in done["proposal"]["chances"]]
    assert all(chance is not None and 0 < chance <= 1 for chance in chances)
    lines = server.stream("/v1/completions", **asked)
    streamed = [r for c in lines[:-1] for r in json.loads(c)["choices"][0]["forerun"]["trace"]]
    tokens = [entry for done in streamed for entry in done["emitted"]]
    assert [t["token_id"] for t in tokens] == [t["token_id"] for t in emitted]


def test_truncation_keeps_the_end(server: Running) -> None:
    ids = server.ask("/tokenize", prompt="hello there")["tokens"]
    answer = server.ask(
        "/v1/completions",
        prompt="hello there",
        truncate_prompt_tokens=3,
        return_token_ids=True,
        **LONG,
    )
    assert answer["choices"][0]["prompt_token_ids"] == ids[-3:]


def test_tokens_and_back(server: Running) -> None:
    found = server.ask("/tokenize", prompt="hello", return_token_strs=True)
    assert found["count"] == 5
    assert found["token_strs"] == list("hello")
    assert server.ask("/detokenize", tokens=found["tokens"])["prompt"] == "hello"
    assert server.ask("/tokenize", messages=CHAT)["count"] == len("hello there") + 3
    assert server.ask("/tokenize", prompt="")["count"] == 0
    goes_on = [*CHAT, {"role": "assistant", "content": "abc"}]
    options = {"continue_final_message": True, "add_generation_prompt": False}
    counted = server.ask("/tokenize", messages=goes_on, **options)["count"]
    answered = server.ask("/v1/chat/completions", messages=goes_on, **options, max_tokens=1)
    assert answered["usage"]["prompt_tokens"] == counted
    error_of(server.post("/tokenize"), 400)
    error_of(server.post("/detokenize", tokens=[999]), 400)


def test_responses(server: Running) -> None:
    asked = {"input": "hello there", "seed": 5, "ignore_eos": True, "max_output_tokens": 12}
    answer = server.ask("/v1/responses", **asked, metadata={"a": "b"})
    assert (answer["object"], answer["status"]) == ("response", "incomplete")
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["metadata"] == {"a": "b"}
    text = answer["output"][0]["content"][0]["text"]
    items = [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "hello there"}],
        }
    ]
    assert (
        server.ask("/v1/responses", **{**asked, "input": items})["output"][0]["content"][0]["text"]
        == text
    )
    chat = server.ask("/v1/chat/completions", messages=CHAT, **{**LONG, "max_tokens": 12})
    assert chat["choices"][0]["message"]["content"] == text
    told = server.ask("/v1/responses", **asked, instructions="be brief")
    assert told["usage"]["input_tokens"] > answer["usage"]["input_tokens"]
    counted = [
        server.ask("/v1/responses/input_tokens", input=given, **more)["input_tokens"]
        for given, more in (("hello there", {}), (items, {}), (items, {"instructions": "be brief"}))
    ]
    assert counted[0] == counted[1] == answer["usage"]["input_tokens"]
    assert counted[2] == told["usage"]["input_tokens"]
    assert server.ask("/v1/responses/input_tokens")["input_tokens"] < counted[0]
    error_of(server.post("/v1/responses/input_tokens", input="a", conversation="c"), 400)
    events = [json.loads(line) for line in server.stream("/v1/responses", **asked)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.incomplete"
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == text
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == text
    error_of(server.post("/v1/responses", input="a", previous_response_id="resp_1"), 400)


def test_a_response_can_be_sent_back(server: Running) -> None:
    """A response is valid input as it is, with the log-probabilities that were asked for."""
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "max_output_tokens": 4}
    answer = server.ask("/v1/responses", input="hello", **asked)
    assert answer["output"][0]["content"][0]["logprobs"]
    items = [{"role": "user", "content": "hello"}, *answer["output"]]
    items.append({"role": "user", "content": "and then"})
    server.ask("/v1/responses", input=items, **asked)
    server.ask("/v1/responses/input_tokens", input=items)


def test_minus_one_asks_for_all_that_there_is_room_for(server: Running) -> None:
    """As in llama-server."""
    for path, name, asked in (
        ("/v1/completions", "max_tokens", {"prompt": "abc"}),
        ("/v1/chat/completions", "max_tokens", {"messages": CHAT}),
        ("/v1/chat/completions", "max_completion_tokens", {"messages": CHAT}),
    ):
        answer = server.ask(path, **asked, **{name: -1}, ignore_eos=True, seed=1)
        assert answer["usage"]["total_tokens"] == 256
        assert answer["choices"][0]["finish_reason"] == "length"
