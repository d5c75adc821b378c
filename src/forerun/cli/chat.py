"""`forerun chat`: a conversation on the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from forerun.cli.generate import bounded, show_stream
from forerun.cli.options.engine import engine_options, load
from forerun.cli.options.sampling import sampling_options
from forerun.cli.options.shared import keep, takes
from forerun.cli.terminal.input import ask, check_stdin, checked_text
from forerun.cli.terminal.output import say
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption, PromptTooLong, RequestTooLarge
from forerun.types import SamplingParams

if TYPE_CHECKING:
    from forerun.engine import CompletionOutput
    from forerun.models.text.tokenizer import Tokenizer
    from forerun.replies import ReplyForm

_COMMANDS: Final = "/reset starts over, /bye leaves"
_COMMAND: Final = re.compile(r"/\w+")


@takes(engine=engine_options, params=sampling_options)
def chat(
    engine: EngineConfig,
    params: SamplingParams,
    system: Annotated[str | None, typer.Option("--system", help="System message.")] = None,
) -> None:
    """Chat with a model in the terminal.

    /reset starts over, /bye or end of input leaves, ^C stops an answer.
    """
    if params.n != 1:
        raise InvalidOption("--n is for generate; a conversation has one answer at a time.")
    if params.logprobs is not None:
        raise InvalidOption("--logprobs are for generate --json; a conversation does not show any.")
    opening = []
    if system is not None:
        opening.append({"role": "system", "content": checked_text(system, "--system")})
    check_stdin()
    llm = keep(load(engine))
    if not llm.tokenizer.has_chat_template:
        raise InvalidOption(
            "this model has no chat template; give one with --chat-template, or use generate."
        )
    messages = list(opening)
    say(f"{engine.model}: {_COMMANDS}", err=True)
    while (line := ask("> ")) not in (None, "/bye", "/exit"):
        if line == "/reset":
            messages = list(opening)
            continue
        if _COMMAND.fullmatch(line or ""):
            say(f"unknown command {line}; {_COMMANDS}.", err=True)
            continue
        if not line:
            continue
        messages.append({"role": "user", "content": line})
        asked = llm.conversations.ask(messages)
        tokens = llm.tokenizer.encode(asked.text, add_special=False)
        fitting = asked.form.params(bounded(params, llm, len(tokens)))
        try:
            output = show_stream(llm, tokens, fitting, trace=False)
        except (PromptTooLong, RequestTooLarge) as error:
            messages.pop()
            say(f"forerun: {error} Or start over with /reset.", err=True)
            continue
        except KeyboardInterrupt:  # ends this answer, not the conversation
            if not check_stdin().isatty():
                raise
            messages.pop()
            continue
        messages.append(_said(llm.tokenizer, output, asked.form))


def _said(tokenizer: Tokenizer, output: CompletionOutput, form: ReplyForm) -> dict[str, str]:
    """Return the answer as a message, without special tokens and reasoning marks: the chat template
    writes those itself."""
    reply = form.read(output.text)
    words = reply.words
    for token in tokenizer.special_ids.intersection(output.token_ids):
        words = words.replace(tokenizer.decode([token], skip_special=False, continuing=True), "")
    return {"role": "assistant", "content": words, "reasoning_content": reply.reasoning}
