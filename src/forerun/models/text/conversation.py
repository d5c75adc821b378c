"""A conversation as a prompt's text: with an answer to begin, or its last message left open."""

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
    """Through the model's chat template. Where nobody says more, an answer is to begin unless the
    last message goes on."""
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
    # Its words may stand in what the template puts behind them, too, so their end has a mark.
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
    """What says how much to reason, where the chat template reads it: OpenAI's `reasoning_effort`,
    or whether to at all."""
    if effort is None:
        return {}
    known = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    reads = tokenizer.template_reads if tokenizer.has_chat_template else ()
    return {name: value for name, value in known.items() if name in reads}


def checked_variables(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """`chat_template_kwargs`: whatever a template reads, but for what has a name of its own."""
    if not isinstance(given, Mapping | None):
        raise InvalidOption("chat_template_kwargs cannot be this; give a mapping, or None.")
    for name in given or ():
        if name in _TEMPLATE_OWN:
            raise InvalidOption(
                f"chat_template_kwargs cannot set {name}; give it by its own name, beside them."
            )
    return given or {}


def require_read(given: Mapping[str, Any], tokenizer: Tokenizer, options: Collection[str]) -> None:
    """Names that the chat template reads; a slip is named beside the nearest of `options`, too."""
    if not given:
        return
    reads = tokenizer.template_reads
    for name in given:
        if name not in reads:
            raise UnknownKeyword(str(unknown_name("option of chat", name, {*options, *reads})))
