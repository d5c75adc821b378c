"""Prompts for conversations with one model, and the form of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from forerun.models.text.chat_template import Messages, content_text
from forerun.models.text.conversation import conversation_text
from forerun.models.text.tokenizer import Tokenizer
from forerun.replies.marks import ReasoningMarks
from forerun.replies.reasoning import Reasoning
from forerun.replies.reply import ReplyForm
from forerun.tools import Calling, Toolbox


class Asked(NamedTuple):
    """A prompt's text, and what its answer may consist of."""

    text: str
    form: ReplyForm


@dataclass(frozen=True)
class Conversations:
    """Makes one model's prompts; `marks` are those of its reasoning, if that is to be separated."""

    tokenizer: Tokenizer
    toolbox: Toolbox
    marks: ReasoningMarks | None

    def ask(
        self,
        messages: Messages,
        calling: Calling | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
    ) -> Asked:
        """Render a conversation with the chat template, which gets `variables` and the tools.

        The other options are those of `conversation_text`."""
        shown = calling.shown if calling else ()
        messages, variables = self.toolbox.told(messages, shown, variables or {})
        text = conversation_text(
            self.tokenizer,
            messages,
            variables,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )
        last = content_text(messages[-1]) if continue_final_message else ""
        return Asked(text, ReplyForm(Reasoning.behind(text, last, self.marks), calling))
