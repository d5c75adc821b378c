"""`forerun demo`: a real model, plain and speculative side by side."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import typer

from forerun.cli.options.cache_dir import cache_dir
from forerun.cli.options.engine import DEFAULT_MODEL, engine_options, load
from forerun.types import SamplingParams

if TYPE_CHECKING:
    from rich.console import Console

    from forerun.engine import LLM, CompletionOutput

STORY = (
    "The lighthouse keeper climbed the stairs each evening with a lantern in one hand and a book "
    "in the other. He lit the great lamp, opened the book, and read aloud to the sea until the "
    "ships had passed and the moon stood high above the rocks."
)
PROMPTS = {
    "copy-heavy": f"Repeat the following text word for word.\n\n{STORY}",
    "free": "Explain in a few sentences why the sky is blue.",
}
PARAMS = SamplingParams(temperature=0, max_tokens=72)


def demo() -> None:
    """Fetch SmolLM2, answer two prompts with and without speculation, compare the tokens."""
    from rich.console import Console

    from forerun.cli.pull import pull_with_progress

    console = Console(highlight=False)
    engine = engine_options(model=DEFAULT_MODEL, max_model_len=1024)
    pull_with_progress(DEFAULT_MODEL, cache_dir())
    console.print(f"loading {DEFAULT_MODEL} …", style="dim")
    speculative = load(engine)
    plain = speculative.with_speculation(None)
    all_same = True
    for name, prompt in PROMPTS.items():
        all_same &= _compare(console, plain, speculative, name, prompt)
    if not all_same:
        raise typer.Exit(1)


def _compare(console: Console, plain: LLM, speculative: LLM, name: str, prompt: str) -> bool:
    """Both answers to one prompt; whether every token is the same."""
    console.rule(f"[bold]{name}")
    console.print(prompt, style="italic", markup=False)
    tokens = plain.tokenizer.encode_chat([{"role": "user", "content": prompt}])
    one = _answer(console, plain, tokens, "plain")
    other = _answer(console, speculative, tokens, "speculative")
    same = one.token_ids == other.token_ids
    saved = one.stats["target_passes"] - other.stats["target_passes"]
    console.print(
        f"{'identical' if same else 'DIFFERENT'}: {len(one.token_ids)} tokens, "
        f"{saved} of {one.stats['target_passes']} target passes saved",
        style="bold green" if same else "bold red",
    )
    return same


def _answer(console: Console, llm: LLM, tokens: list[int], title: str) -> CompletionOutput:
    """Write one answer, each token in the colour of its origin, and show it in a frame."""
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


def _figures(output: CompletionOutput) -> str:
    stats = output.stats
    return (
        f"{stats['target_passes']} passes for {stats['emitted_tokens']} tokens, "
        f"{stats['seconds']:.1f} s"
    )
