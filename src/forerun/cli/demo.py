"""`forerun demo`: a real model, plain and speculative side by side."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import typer

from forerun.cli.options.engine import DEFAULT_MODEL, engine_options, load
from forerun.cli.options.shared import keep, takes
from forerun.models.download.store import default_cache_dir
from forerun.types import SamplingParams

if TYPE_CHECKING:
    from rich.console import Console

    from forerun.engine import LLM, CompletionOutput

LETTER = (
    "Dear Ms Weber, thnak you for your order of 12 March. The two oak chairs and the round table "
    "left our workshop in Lyon on Monday, and the carrier expects to deliver them to 14 Harbour "
    "Street on Thursday morning. The invoice of 1,240 euros is enclosd. If a chair should be "
    "damaged, please call us within seven days. Yours sincerely, Paul Martin"
)
PROMPTS = {
    "edit": f"Correct the spelling mistakes in this letter.\n\n{LETTER}",
    "free": "What is a good way to learn to play the piano?",
}
PARAMS = SamplingParams(temperature=0, max_tokens=120)
WARM_UP = "one two three four " * 6  # so that compiling and recording at first use are over


@takes()
def demo() -> None:
    """Download SmolLM2 and answer two prompts with and without speculation, side by side."""
    from rich.console import Console

    from forerun.cli.pull import pull_with_progress

    console = Console(highlight=False)
    engine = engine_options(model=DEFAULT_MODEL, max_model_len=1024)
    pull_with_progress(DEFAULT_MODEL, default_cache_dir())
    console.print(f"loading {DEFAULT_MODEL} …", style="dim")
    speculative = keep(load(engine))
    plain = speculative.with_speculation(None)
    for llm in (plain, speculative):
        llm.generate(WARM_UP, SamplingParams(temperature=0, max_tokens=16))
    all_same = True
    for name, prompt in PROMPTS.items():
        all_same &= _compare(console, plain, speculative, name, prompt)
    if not all_same:
        raise typer.Exit(1)


def _compare(console: Console, plain: LLM, speculative: LLM, name: str, prompt: str) -> bool:
    """Show both answers to one prompt; return whether every token is the same."""
    console.rule(f"[bold]{name}")
    console.print(prompt, style="italic", markup=False)
    tokens = plain.tokenizer.encode_chat([{"role": "user", "content": prompt}])
    one = _answer(console, plain, tokens, "plain")
    other = _answer(console, speculative, tokens, "speculative")
    with console.status("repeating both without cached prefixes: the faster run of each counts …"):
        seconds = [
            _fastest(llm, tokens, first) for llm, first in ((plain, one), (speculative, other))
        ]
    same = one.token_ids == other.token_ids
    console.print(
        f"{'identical' if same else 'DIFFERENT'} tokens, {other.stats['target_passes']} target "
        f"passes instead of {one.stats['target_passes']}, "
        f"{seconds[0] / seconds[1]:.1f} times as fast",
        style="bold green" if same else "bold red",
    )
    return same


def _answer(console: Console, llm: LLM, tokens: list[int], title: str) -> CompletionOutput:
    """Generate one answer and show it in a frame, each token in the colour of its origin."""
    from rich.panel import Panel
    from rich.text import Text

    from forerun.cli.terminal.colours import coloured

    text = Text()
    output = None
    with console.status(f"{title} decoding …"), closing(llm.stream(tokens, PARAMS)) as events:
        for event in events:
            text.append_text(coloured(event))
            output = event.output
    assert output is not None, "a stream ends with its output"
    console.print(Panel(text, title=title, subtitle=_figures(output)))
    return output


def _fastest(llm: LLM, tokens: list[int], first: CompletionOutput) -> float:
    """Return the faster of two times; the other cache salt hides the first answer's prefixes."""
    again = llm.generate(tokens, PARAMS, cache_salt="again")[0].outputs[0]
    return float(min(first.stats["seconds"], again.stats["seconds"]))


def _figures(output: CompletionOutput) -> str:
    stats = output.stats
    return (
        f"{stats['target_passes']} passes for {stats['emitted_tokens']} tokens, "
        f"{stats['seconds']:.1f} s"
    )
