"""Chat templates: a model's own jinja program that turns a conversation into a prompt."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final, NoReturn, TypeVar

from jinja2 import meta
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from forerun.errors import InvalidOption, InvalidTemplate
from forerun.files import MAX_TEXT_BYTES, read_text
from forerun.models.text.template_sandbox import MAX_CHARS, TemplateSandbox

Messages = Sequence[Mapping[str, Any]]
T = TypeVar("T")
_TEXT_PARTS: Final = ("text", "input_text", "output_text")  # the last two: OpenAI's responses API


def template_text(given: object) -> str:
    """Return `given` if it contains jinja2, else the text of the file that it names."""
    if isinstance(given, str) and ("{{" in given or "{%" in given):
        return given
    if not isinstance(given, str) or not os.path.isfile(given):
        raise InvalidTemplate(
            f"chat_template={reprlib.repr(given)} is neither a jinja2 template nor a file; give "
            f"the text of one, or its path."
        )
    try:
        return read_text(Path(given), MAX_TEXT_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidTemplate(
            f"chat_template {given} cannot be read: {reason}; give a jinja2 file."
        ) from None


def content_text(message: Mapping[str, Any]) -> str:
    """Return a message's content as one text: parts become lines, an assistant's None is empty."""
    content = message["content"]
    if isinstance(content, str):
        return content
    if content is None and message.get("role") == "assistant":
        return ""
    if not isinstance(content, list | tuple) or not all(map(_is_text_part, content)):
        raise InvalidOption(
            f"the content of a message cannot be {reprlib.repr(content)}; give a text, or a list "
            f'of {{"type": "text", "text": …}}.'
        )
    return "\n".join(part["text"] for part in content)


def _is_text_part(given: object) -> bool:
    if not isinstance(given, Mapping):
        return False
    return given.get("type") in _TEXT_PARTS and isinstance(given.get("text"), str)


def _with_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message with its content as one text.

    Messages with tool calls, which may have no content, and those of tools, which may have any
    value, stay as they are: templates handle both."""
    if "content" not in message or message.get("tool_calls") or message.get("role") == "tool":
        return dict(message)
    return {**message, "content": content_text(message)}


class _RefusedMessages(TemplateError):
    """The template itself called raise_exception."""


class ChatTemplate:
    """One compiled template, with the functions that Hugging Face gives to templates."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._sandbox = TemplateSandbox()
        self._sandbox.filters["tojson"] = _to_json
        self._sandbox.globals.update(raise_exception=_refuse, strftime_now=_strftime_now)
        self._lock = Lock()  # the sandbox counts the loop turns of one rendering at a time
        self._program = _guarded(lambda: self._sandbox.from_string(source))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The variables that the template reads."""
        return frozenset(meta.find_undeclared_variables(self._sandbox.parse(self.source)))

    def render(self, /, messages: Messages, add_generation_prompt: bool, **variables: Any) -> str:
        """Return the prompt text for `messages`; `variables` are further ones for the template."""
        given = {
            "messages": [_with_text(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            **variables,
        }
        with self._lock:
            return _guarded(lambda: self._render(given))

    def _render(self, variables: dict[str, Any]) -> str:
        self._sandbox.start()
        chunks: list[str] = []
        num_chars = 0
        for chunk in self._program.generate(variables):
            self._sandbox.check_time()
            num_chars += len(chunk)
            if num_chars > MAX_CHARS:
                raise SecurityError(f"it wrote more than {MAX_CHARS} characters")
            chunks.append(chunk)
        return "".join(chunks)


def _refuse(message: str) -> NoReturn:
    raise _RefusedMessages(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as transformers does: without the HTML escapes of jinja's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _guarded(run: Callable[[], T]) -> T:
    """Call `run`; whatever a template does wrong raises `InvalidTemplate` with one sentence."""
    try:
        return run()
    except _RefusedMessages as error:
        raise InvalidTemplate(f"the chat template refuses these messages: {error}") from None
    except SecurityError as error:
        raise InvalidTemplate(
            f"the chat template was stopped ({error}); give another with --chat-template."
        ) from None
    except TemplateSyntaxError as error:
        raise InvalidTemplate(
            f"the chat template does not parse at line {error.lineno}: {error.message}"
        ) from None
    except Exception as error:
        # A template is a program written elsewhere: it may raise anything.
        raise InvalidTemplate(f"the chat template failed on these messages: {error}") from None
