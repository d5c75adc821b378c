"""Where an output ends: never past a stop, whatever was guessed, and nothing is left behind."""

from __future__ import annotations

import gc
from pathlib import Path
from types import GeneratorType
from typing import Any

import numpy as np
import pytest

from forerun.engine import LLM, SpeculativeConfig
from forerun.errors import InvalidOption, InvalidTemplate, PromptTooLong
from forerun.types import SamplingParams

EVERYTHING_RIGHT = {
    "method": "own_layers",
    "num_layers": 3,
    "num_speculative_tokens": 6,
    "adaptive": False,
}


@pytest.fixture(scope="module")
def eager(plain: LLM) -> LLM:
    """An engine whose guesses are always right, so every end falls inside an accepted run."""
    return plain.with_speculation(EVERYTHING_RIGHT)


def both(plain: LLM, eager: LLM, prompt: Any, **options: Any) -> Any:
    params = SamplingParams(temperature=0.9, seed=5, **options)
    one, other = (llm.generate(prompt, params)[0].outputs[0] for llm in (plain, eager))
    assert (one.text, one.token_ids) == (other.text, other.token_ids)
    assert (one.finish_reason, one.stop_reason) == (other.finish_reason, other.stop_reason)
    assert len(other.origins) == len(other.token_ids) == other.stats["emitted_tokens"]
    return other


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_max_tokens(plain: LLM, eager: LLM, max_tokens: int) -> None:
    output = both(plain, eager, "abc", max_tokens=max_tokens, ignore_eos=True)
    assert len(output.token_ids) == max_tokens
    assert output.finish_reason == "length"


def test_stop_strings_cut_exactly(plain: LLM, eager: LLM) -> None:
    whole = both(plain, eager, "abc", max_tokens=40, ignore_eos=True).text
    for start in range(0, 30, 3):
        for length in (1, 2, 5):
            stop = whole[start : start + length]
            output = both(plain, eager, "abc", max_tokens=40, ignore_eos=True, stop=(stop,))
            assert output.text == whole[: whole.index(stop)]
            assert output.finish_reason == "stop"
            assert output.stop_reason == stop
            kept = both(
                plain, eager, "abc", max_tokens=40, ignore_eos=True, stop=(stop,),
                include_stop_str_in_output=True,
            )  # fmt: skip
            assert kept.text == whole[: whole.index(stop)] + stop


def test_stop_tokens(plain: LLM, eager: LLM) -> None:
    whole = both(plain, eager, "abc", max_tokens=40, ignore_eos=True).token_ids
    for token in set(whole):
        output = both(plain, eager, "abc", max_tokens=40, ignore_eos=True, stop_token_ids=(token,))
        assert output.token_ids == whole[: whole.index(token) + 1]
        assert output.stop_reason == token


def test_eos_ends_and_min_tokens_delays_it(plain: LLM, eager: LLM) -> None:
    eos = plain.tokenizer.eos_ids[0]
    options = {"max_tokens": 40, "logit_bias": {eos: 3.0}}
    output = both(plain, eager, "abc", **options)
    assert output.token_ids[-1] == eos
    assert output.finish_reason == "stop"
    longer = both(plain, eager, "abc", min_tokens=12, **options)
    assert len(longer.token_ids) >= 12


def test_min_tokens_delays_stop_strings_too(plain: LLM, eager: LLM) -> None:
    whole = both(plain, eager, "abc", max_tokens=40, ignore_eos=True).text
    stop = whole[2]
    output = both(plain, eager, "abc", max_tokens=40, ignore_eos=True, stop=(stop,), min_tokens=9)
    assert len(output.token_ids) > 9
    assert output.text == whole[: whole.index(stop, 9)]


@pytest.mark.parametrize("room", [1, 2, 3, 8])
def test_the_context_is_never_exceeded(plain: LLM, eager: LLM, room: int) -> None:
    prompt = [3] * (plain.max_model_len - room)
    output = both(plain, eager, prompt, max_tokens=None, ignore_eos=True)
    assert len(output.token_ids) == room
    assert output.finish_reason == "length"


def test_streams_join_to_the_text_and_hold_back_what_a_stop_may_take(eager: LLM) -> None:
    params = SamplingParams(temperature=0.9, seed=5, max_tokens=40, ignore_eos=True)
    whole = eager.generate("abc", params)[0].outputs[0].text
    for stop in ((), (whole[10:14],), ("zzzz", whole[3] + "zz")):
        events = list(eager.stream("abc", params.with_(stop=stop)))
        output = events[-1].output
        assert output is not None
        assert "".join(event.text for event in events) == output.text
        assert sum((event.tokens for event in events), ()) == output.token_ids
        assert all(event.output is None for event in events[:-1])
        assert whole.startswith(output.text)


def test_an_abandoned_stream_leaves_nothing_behind(plain: LLM) -> None:
    llm = plain.with_speculation({"method": "own_layers", "num_layers": 1, "adaptive": False})
    stream = llm.stream("abc", SamplingParams(max_tokens=50, ignore_eos=True))
    next(stream)
    next(stream)
    assert llm.in_use()["pages"]
    stream.close()
    assert not any(llm.in_use().values()), llm.in_use()


def test_a_closed_stream_ends_while_its_inner_generators_are_held(plain: LLM) -> None:
    """Some Pythons (3.12.3) keep what a closed generator held until the generator object goes."""
    llm = plain.with_speculation(None)
    stream = llm.stream("abc", SamplingParams(max_tokens=50, ignore_eos=True))
    next(stream)
    held = [found for found in gc.get_objects() if type(found) is GeneratorType]
    assert held
    stream.close()
    assert llm.engine.is_idle
    assert llm.engine.core.cache.pool.num_free == llm.engine.core.cache.pool.num_pages


def test_finished_requests_leave_nothing_behind(eager: LLM) -> None:
    eager.generate(["abc", "b"], SamplingParams(max_tokens=9))
    assert eager.engine.core.cache.pool.num_free == eager.engine.core.cache.pool.num_pages


def test_logprobs_are_the_targets_own(plain: LLM, eager: LLM) -> None:
    params = SamplingParams(
        temperature=0.9, seed=5, max_tokens=10, logprobs=2, ignore_eos=True, top_k=3
    )
    one, other = (llm.generate("abc", params)[0].outputs[0] for llm in (plain, eager))
    assert one.logprobs is not None
    assert one.logprobs == other.logprobs
    for token, shown in zip(one.token_ids, one.logprobs, strict=True):
        assert token in shown
        assert 2 <= len(shown) <= 3
        assert all(value <= 0 for value in shown.values())


def test_logprobs_of_an_output_that_ends_inside_a_run(plain: LLM, eager: LLM) -> None:
    whole = both(plain, eager, "abc", max_tokens=12, ignore_eos=True).token_ids
    output = both(
        plain, eager, "abc", max_tokens=12, ignore_eos=True, logprobs=1, stop_token_ids=(whole[3],)
    )
    assert len(output.logprobs) == len(output.token_ids) == whole.index(whole[3]) + 1


def test_chat_goes_through_the_template(plain: LLM) -> None:
    messages = [{"role": "user", "content": "abc"}]
    by_chat = plain.chat(messages, SamplingParams(temperature=0, max_tokens=5))[0]
    assert plain.tokenizer.decode(by_chat.prompt_token_ids, skip_special=False) == (
        "<|start|>abc<|end|><|start|>"
    )
    assert len(plain.chat([messages, messages], SamplingParams(max_tokens=2))) == 2


def _prompt_of(llm: LLM, messages: Any, **options: Any) -> str:
    (output,) = llm.chat(messages, SamplingParams(max_tokens=1), **options)
    return llm.tokenizer.decode(output.prompt_token_ids, skip_special=False)


def test_how_a_conversation_goes_on(plain: LLM) -> None:
    messages = [{"role": "user", "content": "abc"}, {"role": "assistant", "content": "end"}]
    closed = "<|start|>abc<|end|><|start|>end<|end|>"
    assert _prompt_of(plain, messages) == f"{closed}<|start|>"
    assert _prompt_of(plain, messages, add_generation_prompt=False) == closed
    for more in ({}, {"add_generation_prompt": False}):
        going_on = _prompt_of(plain, messages, continue_final_message=True, **more)
        assert going_on == closed.removesuffix("<|end|>")
    assert _prompt_of(plain, messages, chat_template_kwargs={"unread": 1}) == f"{closed}<|start|>"


def _parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def test_text_parts_are_lines_of_a_message(plain: LLM) -> None:
    messages = [{"role": "user", "content": _parts("abc", "end")}]
    assert _prompt_of(plain, messages) == "<|start|>abc\nend<|end|><|start|>"
    going_on = _prompt_of(plain, messages, continue_final_message=True)
    assert going_on == "<|start|>abc\nend"


def test_an_assistant_may_have_said_nothing(plain: LLM) -> None:
    messages = [{"role": "assistant", "content": None}, {"role": "user", "content": []}]
    assert _prompt_of(plain, messages) == "<|start|><|end|>" * 2 + "<|start|>"


@pytest.mark.parametrize(
    "content",
    [
        *(None, 5, b"abc", {"type": "text", "text": "abc"}, ["abc"], [{"type": "text"}]),
        [{"type": "image_url", "image_url": {"url": "x"}}],
        [*_parts("abc"), {"type": "text", "text": None}],
    ],
)
def test_content_that_is_no_text_is_refused(plain: LLM, content: Any) -> None:
    with pytest.raises(InvalidOption, match="give a text, or a list of"):
        plain.chat([{"role": "user", "content": content}])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "drop one"),
        ({"chat_template_kwargs": {"messages": []}}, "cannot set messages"),
        ({"chat_template_kwargs": 5}, "give a mapping, or None"),
        ({"continue_last_message": True}, "did you mean 'continue_final_message'"),
        ({"enable_thinking": True}, "unknown option of chat 'enable_thinking'; valid: add_"),
    ],
)
def test_options_of_chat_that_are_refused(plain: LLM, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        plain.chat([{"role": "user", "content": "abc"}], **options)
    with pytest.raises(InvalidOption, match="the last message has no text"):
        plain.chat([{"role": "user", "content": None}], continue_final_message=True)


def test_a_template_of_ones_own(tiny_path: Path, tmp_path: Path) -> None:
    source = "{{ style }}{{ messages[0].content if style != 'x' }}"
    file = tmp_path / "chat.jinja"
    file.write_text(source)
    for given in (source, str(file)):
        llm = LLM(tiny_path, chat_template=given, speculative_config=None, kernels="reference")
        message = [{"role": "user", "content": "abc"}]
        assert _prompt_of(llm, message, style="q") == "qabc"
        assert _prompt_of(llm, message, chat_template_kwargs={"style": "z"}) == "zabc"
    with pytest.raises(InvalidOption, match="does not show the last message"):
        llm.chat(message, style="x", continue_final_message=True)
    with pytest.raises(InvalidTemplate, match="does not parse"):
        LLM(tiny_path, chat_template="{{")


def test_token_ids_come_in_any_sequence(plain: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=3)
    expected = plain.generate([1, 2], params)[0].outputs[0].token_ids
    for prompt in (np.array([1, 2]), [np.int64(1), np.int64(2)], (1, 2)):
        assert plain.generate(prompt, params)[0].outputs[0].token_ids == expected  # type: ignore[arg-type]


def test_bad_prompts(plain: LLM) -> None:
    with pytest.raises(PromptTooLong, match="shorten it"):
        plain.generate([0] * plain.max_model_len)
    with pytest.raises(InvalidOption, match="empty"):
        plain.generate("")
    with pytest.raises(InvalidOption, match="empty"):
        plain.generate([[]])
    with pytest.raises(InvalidOption, match="ids outside"):
        plain.generate([[10_000]])
    with pytest.raises(InvalidOption, match="2 sampling_params for 1 prompts"):
        plain.generate("a", [SamplingParams()] * 2)
    params: Any
    for params in ({"temperature": 0}, 5, (SamplingParams() for _ in range(1)), "a"):
        with pytest.raises(InvalidOption, match="build it from"):
            plain.generate("a", params)
    messages: Any
    for messages in ("hello", None, 5, [1], [[1]], {"role": "user", "content": "a"}):
        with pytest.raises(InvalidOption, match="messages are a list"):
            plain.chat(messages)
    with pytest.raises(InvalidOption, match="in a stream"):
        next(plain.stream("a", SamplingParams(n=2)))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"method": "ngramm"}, "did you mean 'ngram'"),
        ({"metod": "ngram"}, "did you mean 'method'"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens=0"),
        ({"num_branches": 0}, "num_branches=0"),
        ({"method": "draft_model"}, 'needs "model"; give it beside "method"'),
        ({"method": "own_layers"}, 'needs "num_layers"'),
        ({"method": "merge"}, "name them"),
        ({"method": "merge", "methods": ["ngram", "hybrid"]}, "cannot hold a combination"),
        ({"method": "ngram", "methods": ["random", "ngram"]}, '"methods" belongs'),
        ({"method": "ngram", "model": "x"}, '"ngram" has no use for model; drop it'),
        ({"method": "own_layers", "num_layers": 9}, "the model has 3 layers"),
        ({"method": "ngram", "prompt_lookup_min": 4, "prompt_lookup_max": 2}, "min ≤ max"),
        ({"method": "ngram_tables", "ngram_orders": [0]}, "orders ≥ 1"),
        ({"method": "ngram_tables", "ngram_window": 1}, "window"),
        ({"method": "merge", "methods": ["ngram", "auto"]}, "cannot hold a combination"),
        ({"method": 3}, "method=3"),
        ({"methods": 3}, "methods"),
        ({"model": 3}, "model=3"),
        ({"num_speculative_tokens": "5"}, "num_speculative_tokens='5'"),
        ({"num_speculative_tokens": 10**9}, "lower one"),
        ({"num_branches": True}, "num_branches=True"),
        ({"prompt_lookup_max": 10**9}, "prompt_lookup_max"),
        ({"ngram_orders": 3}, "ngram_orders=3"),
        ({"ngram_orders": [2.5]}, "ngram_orders"),
    ],
)
def test_bad_speculation(plain: LLM, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        plain.with_speculation(options)


@pytest.mark.parametrize("given", ["ngram", 5, ["ngram"]])
def test_speculation_that_is_no_mapping(plain: LLM, given: Any) -> None:
    with pytest.raises(InvalidOption, match="it must be SpeculativeConfig, a mapping like"):
        plain.with_speculation(given)
    with pytest.raises(InvalidOption, match="speculative options are a mapping from names to"):
        SpeculativeConfig.from_dict(given)


def test_a_model_alone_means_draft_model(tiny_draft_path: Path) -> None:
    assert SpeculativeConfig.from_dict({"model": str(tiny_draft_path)}).method == "draft_model"


@pytest.mark.parametrize("text", ["{", "[]", '"ngram"'])
def test_json_that_is_none(text: str) -> None:
    with pytest.raises(InvalidOption, match="--speculative-config"):
        SpeculativeConfig.from_json(text)


@pytest.mark.parametrize("options", [{"max_num_seqs": -1}, {"max_num_seqs": 1.5}])
def test_bad_number_of_running_requests(tiny_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="max_num_seqs"):
        LLM(tiny_path, **options)


@pytest.mark.parametrize("length", [0, 1, 257, "32", True])
def test_bad_context_length(tiny_path: Path, length: Any) -> None:
    with pytest.raises(InvalidOption, match=f"max_model_len={length!r} is not allowed"):
        LLM(tiny_path, max_model_len=length)
