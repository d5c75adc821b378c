"""A conversation as the text of a prompt, for a new answer or to continue the last message."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any, Final

from forerun.errors import InvalidOption, UnknownKeyword, unknown_name
from forerun.models.text.chat_template import Messages, content_text
from forerun.models.text.tokenizer import Tokenizer

_TEMPLATE_OWN: Final = ("messages", "add_generation_prompt", "tools", "documents")


def conversation_text(
    tokenizer: Tokenizer,
    messages: Messages,
    variables: Mapping[str, Any],
    *,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool = False,
) -> str:
    """Render a conversation with the model's chat template.

    `add_generation_prompt` defaults to true, unless the last message is to be continued."""
    opens = not continue_final_message if add_generation_prompt is None else add_generation_prompt
    if not continue_final_message:
        return tokenizer.apply_chat_template(messages, opens, **variables)
    if opens:
        raise InvalidOption(
            "continue_final_message cannot go with add_generation_prompt; drop one."
        )
    *before, last = messages or [{}]
    if last.get("content") is None:
        raise InvalidOption(
            "continue_final_message cannot be where the last message has no text; give it one."
        )
    # The template may repeat the last message's text, so its end is found by a unique mark.
    end = uuid.uuid4().hex
    marked = [*before, {**last, "content": content_text(last) + end}]
    text = tokenizer.apply_chat_template(marked, opens, **variables)
    at = text.rfind(end)
    if at < 0:
        raise InvalidOption(
            "continue_final_message cannot be: the chat template does not show the last message."
        )
    return text[:at]


def effort_variables(tokenizer: Tokenizer, effort: str | None) -> dict[str, Any]:
    """Return the variables by which the chat template takes a reasoning effort: OpenAI's
    `reasoning_effort`, or `enable_thinking`; {} if it reads neither."""
    if effort is None:
        return {}
    known = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    reads = tokenizer.template_reads if tokenizer.has_chat_template else ()
    return {name: value for name, value in known.items() if name in reads}


def checked_variables(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return `chat_template_kwargs`; names that are options of their own raise `InvalidOption`."""
    if not isinstance(given, Mapping | None):
        raise InvalidOption("chat_template_kwargs cannot be this; give a mapping, or None.")
    for name in given or ():
        if name in _TEMPLATE_OWN:
            raise InvalidOption(
                f"chat_template_kwargs cannot set {name}; give it by its own name, beside them."
            )
    return given or {}


def require_read(given: Mapping[str, Any], tokenizer: Tokenizer, options: Collection[str]) -> None:
    """Raise `UnknownKeyword` for a name that the chat template does not read.

    The error suggests the nearest of its variables and of `options`."""
    if not given:
        return
    reads = tokenizer.template_reads
    for name in given:
        if name not in reads:
            raise UnknownKeyword(str(unknown_name("option of chat", name, {*options, *reads})))
