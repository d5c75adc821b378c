"""`forerun generate`: one prompt, one answer."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forerun.cli.options.engine import engine_options, load
from forerun.cli.options.sampling import sampling_options
from forerun.cli.options.shared import bundle, keep, takes
from forerun.cli.terminal.input import checked_text, read_option, read_stdin
from forerun.cli.terminal.output import say, say_json
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption
from forerun.interrupts import Uninterrupted
from forerun.option_fields import option
from forerun.types import SamplingParams

if TYPE_CHECKING:
    from forerun.engine import LLM, CompletionOutput, RequestOutput
    from forerun.replies import ReplyForm


MAX_NUM_SEQS: Final = 8  # answers generated concurrently
_USUAL_LENGTH: Final = 256  # tokens of an answer without --max-tokens


@dataclass(frozen=True)
class GenerateOptions:
    prompt_option: str | None = option(None, "The prompt, as an option.", "--prompt", "-p")
    chat: bool = option(
        False, "Send the prompt as a user's message, with the model's chat template."
    )
    prediction: Path | None = option(
        None, "File with roughly the text that you expect; guesses follow it."
    )
    json: bool = option(False, "Print one JSON object instead of text.")
    trace: bool = option(False, "Print a line per round: accepted and rejected guesses, and why.")


@takes(options=bundle(GenerateOptions), engine=engine_options, params=sampling_options)
def generate(
    options: GenerateOptions,
    engine: EngineConfig,
    params: SamplingParams,
    prompt: Annotated[
        str | None, typer.Argument(help="Text to continue; - reads standard input.")
    ] = None,
) -> None:
    """Continue a text, or answer it with --chat; a summary goes to standard error."""
    text = _prompt_text(prompt, options.prompt_option)
    if options.json and options.trace:
        raise InvalidOption("--json and --trace cannot be combined; choose one.")
    if options.trace and params.n > 1:
        raise InvalidOption("--trace shows a single answer; drop --n.")
    if params.logprobs is not None and not options.json:
        raise InvalidOption("--logprobs needs --json; add it.")
    expected = None
    if options.prediction is not None:
        expected = read_option(options.prediction, "--prediction", "a text file")
    llm = keep(load(engine, max_num_seqs=min(params.n, MAX_NUM_SEQS)))
    tokens, form = _asked(llm, text) if options.chat else (llm.tokenizer.encode(text), None)
    params = bounded(params, llm, len(tokens))
    params = form.params(params) if form else params
    if options.json:
        found = llm.generate(tokens, params, prediction=expected)[0]
        result = _as_dict(found.read_as(form) if form else found)
        with Uninterrupted():  # print the whole line or nothing
            say_json(result)
    elif params.n > 1:
        for output in llm.generate(tokens, params, prediction=expected)[0].outputs:
            say(f"[{output.index}] {output.text}")
            _summarise(output)
    else:
        show_stream(llm, tokens, params, trace=options.trace, prediction=expected)


def _asked(llm: LLM, text: str) -> tuple[list[int], ReplyForm]:
    """Return the tokens of `text` as a user's message, and the form of the reply."""
    asked = llm.conversations.ask([{"role": "user", "content": text}])
    return llm.tokenizer.encode(asked.text, add_special=False), asked.form


def bounded(params: SamplingParams, llm: LLM, prompt_len: int) -> SamplingParams:
    """Set `max_tokens` if it is not given: the usual length, or what fits into the context."""
    if params.max_tokens is not None:
        return params
    usual = max(_USUAL_LENGTH, params.min_tokens)
    return params.with_(max_tokens=min(usual, max(1, llm.max_model_len - prompt_len)))


def show_stream(
    llm: LLM,
    tokens: list[int],
    params: SamplingParams,
    *,
    trace: bool,
    prediction: str | None = None,
) -> CompletionOutput:
    """Stream one answer to the terminal; the summary goes to stderr."""
    from rich.console import Console

    from forerun.cli.terminal.colours import coloured, trace_line

    console = Console(soft_wrap=True, highlight=False, markup=False)
    has_colours = console.color_system is not None and not console.no_color
    output = None
    try:
        with closing(llm.stream(tokens, params, prediction=prediction)) as events:
            for number, event in enumerate(events, start=1):
                if trace:
                    console.print(
                        trace_line(llm.tokenizer, event.round, number, colour=has_colours)
                    )
                elif console.is_terminal:
                    console.print(coloured(event), end="")
                else:  # programs get exactly the text
                    sys.stdout.write(event.text)
                    sys.stdout.flush()
                output = event.output
    except KeyboardInterrupt:
        if console.is_terminal:
            console.print()
        raise
    assert output is not None, "a stream ends with its output"
    if not trace:
        console.print()
    _summarise(output)
    return output


def _summarise(output: CompletionOutput) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(summary(output), style="dim")


def summary(output: CompletionOutput) -> str:
    stats = output.stats
    rate = stats["acceptance_rate"]
    guessed = (
        "nothing guessed"
        if rate is None
        else f"{stats['accepted_tokens']} of {stats['draft_tokens']} guesses accepted ({rate:.0%})"
    )
    return (
        f"{stats['emitted_tokens']} tokens in {stats['target_passes']} target passes "
        f"({stats['mean_acceptance_length']:.2f} per pass) · {guessed} · "
        f"{stats['tokens_per_second']:.1f} tok/s · seed {output.seed} · {output.finish_reason}"
    )


def _prompt_text(argument: str | None, option: str | None) -> str:
    given = [text for text in (argument, option) if text is not None]
    if len(given) != 1:
        raise InvalidOption("give one prompt: as an argument, with --prompt, or - for stdin.")
    text = read_stdin() if given[0] == "-" else given[0]
    if not text:
        raise InvalidOption("the prompt is empty; write something.")
    return checked_text(text, "the prompt")


def _as_dict(result: RequestOutput) -> dict[str, Any]:
    """Return one object; with n > 1 it describes the first answer, and `choices` has all."""
    choices = [_choice(output) for output in result.outputs]
    first = {**choices[0], "prompt_tokens": len(result.prompt_token_ids)}
    return first if len(choices) == 1 else {**first, "choices": choices}


def _choice(output: CompletionOutput) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "text": output.text,
        "token_ids": list(output.token_ids),
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "seed": output.seed,
        "origins": [str(origin) for origin in output.origins],
        "stats": output.stats,
    }
    if output.reasoning is not None:
        choice["reasoning"] = output.reasoning
    if output.logprobs is not None:
        choice["logprobs"] = output.logprobs
    return choice
