"""The one list of fields in OpenAI's, Anthropic's and vLLM's bodies, and how each is treated."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from forerun.server.fields.field import Endpoint, Field, Treatment
from forerun.server.fields.kinds import (
    FLAG,
    TEXT,
    Anything,
    Either,
    Kind,
    ListOf,
    MapOf,
    OneOf,
    Real,
    Shape,
    Text,
    Whole,
)
from forerun.server.fields.message_shapes import (
    CUSTOM_TOOL_CHOICE,
    CUSTOM_TOOLS,
    OUTPUT_CONFIG,
    SYSTEM,
    THINKING,
    TURNS,
)
from forerun.server.fields.shapes import (
    FORERUN,
    INPUT,
    LOGIT_BIAS,
    MESSAGES,
    METADATA,
    NOTHING,
    PREDICTION,
    PROMPT,
    REASONING,
    RESPONSE_FORMAT,
    SOME_TOKENS,
    SPECULATIVE,
    STOP,
    STOP_SEQUENCES,
    STREAM_OPTIONS,
    STRUCTURED_OUTPUTS,
    TEXT_FORMAT,
    TOKENS,
)
from forerun.server.fields.tool_shapes import (
    FLAT_TOOL_CHOICE,
    FLAT_TOOLS,
    TOOL_CHOICE,
    TOOLS,
)

_COMPLETIONS, _CHAT, _RESPONSES = Endpoint.COMPLETIONS, Endpoint.CHAT, Endpoint.RESPONSES
_TOKENIZE, _DETOKENIZE = Endpoint.TOKENIZE, Endpoint.DETOKENIZE
_MESSAGES = Endpoint.MESSAGES
_INPUT: Final = (Endpoint.RESPONSES, Endpoint.INPUT_TOKENS)
_TURNS: Final = (_MESSAGES, Endpoint.COUNT_TOKENS)
_OPENAI: Final = (_COMPLETIONS, _CHAT, _RESPONSES)
_ALL: Final = (*_OPENAI, _MESSAGES)
_BOTH: Final = (_COMPLETIONS, _CHAT)
MAX_COUNT: Final = 2**31 - 1  # tokens in an answer; the context is far smaller
_COUNT: Final = Whole(1, MAX_COUNT)
_COUNT_OR_ROOM: Final = Either((OneOf((-1,)), _COUNT), "a count of tokens, or -1")
LOGPROBS: Final = "message.output_text.logprobs"  # the item of `include` that asks for them
_OF_OTHERS: Final = (
    *("reasoning.encrypted_content", "web_search_call.results", "web_search_call.action.sources"),
    *("file_search_call.results", "code_interpreter_call.outputs"),
    *("message.input_image.image_url", "computer_call_output.output.image_url"),
)
_NO_LIST: Final = ListOf(NOTHING, 0, 0)
_NO_FLAG: Final = OneOf((False,))


def _honoured(name: str, kind: Kind, *on: Endpoint, note: str = "", needed: bool = False) -> Field:
    return Field(name, Treatment.HONOURED, kind, on, note, needed)


def _idle(name: str, kind: Kind, *on: Endpoint, note: str = "") -> Field:
    return Field(name, Treatment.NO_EFFECT, kind, on, note)


def _refused(
    name: str, *on: Endpoint, unused: Kind = NOTHING, note: str = "", code: str = "unsupported"
) -> Field:
    return Field(name, Treatment.REFUSED, unused, on, note, code=code)


FIELDS: Final[tuple[Field, ...]] = (
    # The prompt.
    _honoured("model", Text(1), *Endpoint, note="a name from `/v1/models`"),
    _honoured("prompt", PROMPT, _COMPLETIONS, needed=True),
    _honoured("messages", MESSAGES, _CHAT, needed=True),
    _honoured("messages", TURNS, *_TURNS, needed=True),
    _honoured("system", SYSTEM, *_TURNS, note="a system message before `messages`"),
    _honoured("input", INPUT, _RESPONSES, needed=True, note="text or items"),
    _honoured("input", INPUT, Endpoint.INPUT_TOKENS),
    _honoured("instructions", TEXT, *_INPUT, note="a system message before `input`"),
    _honoured("prediction", PREDICTION, *_ALL, note="Predicted Outputs: the likely answer"),
    _honoured("echo", FLAG, _COMPLETIONS),
    _honoured(
        "continue_final_message",
        FLAG,
        *(_CHAT, _TOKENIZE),
        note="continues the last message",
    ),
    _honoured("add_generation_prompt", FLAG, _CHAT, _TOKENIZE),
    _honoured(
        "chat_template_kwargs",
        MapOf("^[A-Za-z_]", Anything(), 64),
        *(_CHAT, _TOKENIZE, *_TURNS),
    ),
    _honoured("add_special_tokens", FLAG, *_BOTH, _TOKENIZE),
    _honoured(
        "truncate_prompt_tokens",
        Whole(-1, MAX_COUNT),
        *_ALL,
        note="keeps the end; -1: leaves room for the answer",
    ),
    _honoured(
        "truncation",
        OneOf(("auto", "disabled")),
        _RESPONSES,
        note="`auto`: as `truncate_prompt_tokens: -1`",
    ),
    _idle("truncation", OneOf(("auto", "disabled")), Endpoint.INPUT_TOKENS),
    # Sampling.
    _honoured("temperature", Real(0, 100), *_ALL),
    _honoured("top_p", Real(0, 1, above_low=True), *_ALL),
    _honoured("top_k", Whole(-1, MAX_COUNT), *_ALL),
    _honoured("min_p", Real(0, 1), *_ALL),
    _honoured("repetition_penalty", Real(0.01, 100), *_ALL),
    _honoured("presence_penalty", Real(-2, 2), *_ALL),
    _honoured("frequency_penalty", Real(-2, 2), *_ALL),
    _honoured("logit_bias", LOGIT_BIAS, *_ALL),
    _honoured("allowed_token_ids", SOME_TOKENS, *_ALL),
    _honoured(
        "seed",
        Whole(-(2**63), 2**64 - 1),
        *_ALL,
        note="drawn if not given, or -1; further prompts of a list have derived seeds",
    ),
    _honoured("n", Whole(1, 128), *_BOTH, note="choice i > 0 has a seed derived from `seed`"),
    # Where the answer ends.
    _honoured(
        "max_tokens",
        Whole(-1, MAX_COUNT),
        _COMPLETIONS,
        note="completions: at most 16 by default; -1: all the room",
    ),
    _honoured(
        "max_tokens",
        _COUNT_OR_ROOM,
        _CHAT,
        note="chat: older name of `max_completion_tokens`",
    ),
    _honoured(
        "max_completion_tokens",
        _COUNT_OR_ROOM,
        _CHAT,
        note="default, or -1: the rest of the context",
    ),
    _honoured("max_output_tokens", _COUNT, _RESPONSES),
    _honoured(
        "max_tokens",
        Whole(0, MAX_COUNT),
        _MESSAGES,
        note="messages: may exceed the context; 0 only caches the prompt",
        needed=True,
    ),
    _honoured("min_tokens", Whole(0, MAX_COUNT), *_ALL),
    _honoured("stop", STOP, *_OPENAI),
    _honoured("stop_sequences", STOP_SEQUENCES, _MESSAGES),
    _honoured("stop_token_ids", TOKENS, *_ALL),
    _honoured("include_stop_str_in_output", FLAG, *_ALL),
    _honoured("ignore_eos", FLAG, *_ALL),
    _honoured("skip_special_tokens", FLAG, *_ALL),
    # Structured outputs.
    _honoured(
        "structured_outputs",
        STRUCTURED_OUTPUTS,
        *_ALL,
        note="`json`, `json_object`, `regex`, `choice` or `grammar`",
    ),
    _honoured(
        "response_format",
        RESPONSE_FORMAT,
        *_BOTH,
        note="OpenAI's form of `json` and `json_object`",
    ),
    _honoured("text", TEXT_FORMAT, _RESPONSES, note="`format`: as `response_format` in chat"),
    _idle("text", TEXT_FORMAT, Endpoint.INPUT_TOKENS),
    _honoured(
        "output_config",
        OUTPUT_CONFIG,
        *_TURNS,
        note="`format`: as `response_format` in chat; `effort`: as `reasoning_effort`",
    ),
    _refused("output_format", *_TURNS, note="use `output_config.format`"),
    # Tools.
    _honoured("tools", TOOLS, _CHAT, _TOKENIZE, note="functions; see docs/tools.md"),
    _honoured("tools", FLAT_TOOLS, *_INPUT, note="`web_search` and the like are ignored"),
    _honoured(
        "tool_choice",
        TOOL_CHOICE,
        *(_CHAT, _TOKENIZE),
        note="`auto`, `required`, `none`, a function, or `allowed_tools`",
    ),
    _honoured("tool_choice", FLAT_TOOL_CHOICE, *_INPUT),
    _honoured("tools", CUSTOM_TOOLS, *_TURNS),
    _honoured("tool_choice", CUSTOM_TOOL_CHOICE, *_TURNS),
    _honoured("parallel_tool_calls", FLAG, _CHAT, _RESPONSES, note="`false`: at most one call"),
    _idle("parallel_tool_calls", FLAG, Endpoint.INPUT_TOKENS),
    # Reasoning.
    _honoured(
        "reasoning_effort",
        TEXT,
        *(_CHAT, _TOKENIZE),
        note="if the chat template reads it; `none` turns reasoning off if it can",
    ),
    _honoured("reasoning", REASONING, *_INPUT, note="`effort`: as `reasoning_effort` in chat"),
    _honoured(
        "thinking",
        THINKING,
        *_TURNS,
        note="`disabled` turns reasoning off if the template can; `display: omitted` hides it",
    ),
    # How the answer is sent, and what is shown.
    _honoured("stream", FLAG, *_ALL),
    _honoured("stream_options", STREAM_OPTIONS, *_BOTH),
    _idle(
        "stream_options",
        Shape({"include_usage": FLAG, "include_obfuscation": FLAG}),
        _RESPONSES,
        note="responses always include usage",
    ),
    _honoured("logprobs", Whole(0, 20), _COMPLETIONS),
    _honoured("logprobs", FLAG, _CHAT),
    _honoured("top_logprobs", Whole(0, 20), _CHAT, _RESPONSES),
    _honoured(
        "include",
        ListOf(OneOf((LOGPROBS, *_OF_OTHERS))),
        _RESPONSES,
        note=f"`{LOGPROBS}`; others have no effect, reasoning is always text",
    ),
    _honoured("return_token_ids", FLAG, *_BOTH),
    _honoured("include_reasoning", FLAG, _CHAT, note="`false` omits the reasoning"),
    _honoured(
        "reasoning_format",
        OneOf(("auto", "deepseek", "none")),
        _CHAT,
        note="llama.cpp's; `none` keeps reasoning and marks in `content`",
    ),
    _honoured("request_id", Text(1, 512), *_ALL, note="becomes part of the response's id"),
    # Speculation and scheduling.
    _honoured("speculative", SPECULATIVE, *_ALL, note="`false`, or drafter and limits"),
    _honoured("forerun", FORERUN, *_ALL, note="`trace: true`: what each round guessed"),
    _honoured("priority", Whole(-(2**63), 2**63 - 1), *_ALL, note="lower values run sooner"),
    _honoured("cache_salt", Text(1, 1024), *_ALL, note="prefixes are shared only within a salt"),
    # Fields about the client, and fields without effect.
    _idle("user", TEXT, *_OPENAI),
    _idle("safety_identifier", TEXT, *_OPENAI),
    _idle("prompt_cache_key", TEXT, *_OPENAI, note="the prefix cache is always on"),
    _idle("prompt_cache_retention", TEXT, *_OPENAI),
    _idle("prompt_cache_options", Anything(), *_OPENAI),
    _idle("service_tier", TEXT, *_ALL),
    *(_idle(name, Anything(), *_TURNS) for name in ("cache_control", "diagnostics")),
    *(
        _idle(name, TEXT, *_TURNS)
        for name in ("speed", "inference_geo", "user_profile_id", "workspace_id")
    ),
    *(
        _idle(name, Anything(), *_TURNS)
        for name in ("billing_policy", "compaction", "fallbacks", "fallback_credit_token")
    ),
    _idle("context_management", Anything(), *_TURNS, note="no context is cleared"),
    _idle("access_programs", Anything(), _RESPONSES),
    _idle("client_metadata", MapOf("^[A-Za-z_]", Anything(), 64), *_INPUT, note="sent by Codex"),
    _honoured("metadata", METADATA, _RESPONSES, note="responses: returned with the response"),
    _idle("metadata", METADATA, _CHAT),
    _idle("metadata", Anything(), *_TURNS),
    _idle("store", FLAG, _CHAT, _RESPONSES, note="nothing is stored"),
    _idle("max_tool_calls", Whole(0, MAX_COUNT), _RESPONSES),
    _idle("verbosity", OneOf(("low", "medium", "high")), _CHAT),
    _idle("personality", TEXT, Endpoint.INPUT_TOKENS),
    _idle("spaces_between_special_tokens", FLAG, *_BOTH),
    _idle("session_id", TEXT, *_BOTH),
    _idle("stream_interval", Whole(1, MAX_COUNT), *_BOTH, note="one event for each round"),
    _idle("return_mm_kwargs", FLAG, *_BOTH),
    _idle("routed_experts_prompt_start", Whole(0, MAX_COUNT), *_BOTH),
    # Not supported; `unused` are the values that do not ask for it.
    _refused("suffix", _COMPLETIONS, unused=OneOf(("",)), note="no infilling: leave it out"),
    _refused("best_of", _COMPLETIONS, unused=OneOf((1,)), note="use `n`"),
    _refused("functions", _CHAT, unused=_NO_LIST, note="use `tools`"),
    _refused("function_call", _CHAT, unused=OneOf(("none", "auto")), note="use `tool_choice`"),
    *(
        _refused(name, *_BOTH, note="use `structured_outputs`, vLLM's newer name")
        for name in ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
    ),
    _refused("modalities", _CHAT, unused=ListOf(OneOf(("text",)))),
    _refused("audio", _CHAT),
    _refused("image", _RESPONSES),
    _refused("moderation", _CHAT, _RESPONSES),
    _refused("web_search_options", _CHAT),
    _refused("use_beam_search", *_BOTH, unused=_NO_FLAG),
    _refused(
        "length_penalty",
        *_BOTH,
        unused=OneOf((1, 1.0)),
        note="there is no beam search",
    ),
    _refused("bad_words", *_BOTH, unused=_NO_LIST, note="use `logit_bias`"),
    _refused("prompt_logprobs", *_BOTH, note="use completions with `echo` and `logprobs`"),
    _refused("return_tokens_as_token_ids", *_BOTH, unused=_NO_FLAG, note="use `return_token_ids`"),
    _refused("prompt_embeds", _COMPLETIONS),
    _refused(
        "chat_template",
        _CHAT,
        note="a template is a program: start the server with --chat-template",
    ),
    _refused("documents", _CHAT, unused=_NO_LIST),
    _refused("mm_processor_kwargs", _CHAT, _RESPONSES),
    _refused("logits_processors", *_BOTH, unused=_NO_LIST),
    _refused("kv_transfer_params", *_BOTH),
    _refused("ec_transfer_params", *_BOTH),
    _refused("echo", _CHAT, unused=_NO_FLAG, note="in chat use `continue_final_message`"),
    _refused("thinking_token_budget", *_BOTH),
    _refused("logprob_token_ids", *_BOTH, unused=_NO_LIST),
    _refused("truncation_side", *_BOTH, unused=OneOf(("left",)), note="truncation keeps the end"),
    _refused("watermarking", *_BOTH),
    _refused("repetition_detection", *_BOTH),
    _refused("media_io_kwargs", _CHAT),
    _refused("return_prompt_text", *_BOTH, unused=_NO_FLAG),
    _refused("return_token_offsets", *_BOTH, unused=_NO_FLAG),
    _refused("vllm_xargs", *_OPENAI, unused=MapOf("$^", NOTHING, 0)),
    _refused("background", _RESPONSES, unused=_NO_FLAG, note="wait for the response"),
    _refused("conversation", *_INPUT, note="nothing is stored: send all items"),
    _refused(
        "previous_response_id",
        *_INPUT,
        note="nothing is stored: send all items",
        code="previous_response_not_found",  # makes clients send all items
    ),
    _refused("previous_response", _RESPONSES, note="send all items"),
    _refused("previous_input_messages", _RESPONSES, unused=_NO_LIST, note="send all items"),
    _refused("enable_response_messages", _RESPONSES, unused=_NO_FLAG),
    _refused("prompt", _RESPONSES, note="prompts are not stored: send `input`"),
    _refused("context_management", _RESPONSES, unused=_NO_LIST),
    _refused("container", _MESSAGES),
    _refused(
        "thread",
        *_TURNS,
        note="nothing is stored: send all messages",
        code="thread_unsupported_request",  # makes clients do without it
    ),
    _refused("mcp_servers", *_TURNS, unused=_NO_LIST, note="call them from the client"),
    # /tokenize and /detokenize.
    _honoured("prompt", TEXT, _TOKENIZE, note="or `messages`"),
    _honoured("messages", MESSAGES, _TOKENIZE, note="or `prompt`"),
    _honoured("return_token_strs", FLAG, _TOKENIZE),
    _honoured("tokens", TOKENS, _DETOKENIZE, needed=True),
)


def fields_of(endpoint: Endpoint) -> Iterator[Field]:
    return (field for field in FIELDS if endpoint in field.on)


@cache
def by_name(endpoint: Endpoint) -> dict[str, Field]:
    return {field.name: field for field in fields_of(endpoint)}


def markdown() -> str:
    """Return the table of fields for the docs."""
    lines = [
        "| field | completions | chat | responses | messages | note |",
        "|---|---|---|---|---|---|",
    ]
    names = dict.fromkeys(field.name for field in FIELDS if set(field.on) & set(_ALL))
    for name in names:
        found = [by_name(endpoint).get(name) for endpoint in _ALL]
        words = [field.treatment.value if field else "–" for field in found]
        notes = dict.fromkeys(field.note for field in found if field and field.note)
        lines.append(f"| `{name}` | {' | '.join(words)} | {'; '.join(notes)} |")
    return "\n".join(lines)
