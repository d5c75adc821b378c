"""`forerun demo`: a real model, plain and speculative side by side."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

from forerun.cli.cache_dir import cache_dir
from forerun.cli.engine_options import DEFAULT_MODEL
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
    from forerun.engine import LLM

    console = Console(highlight=False)
    folder = cache_dir(os.environ)
    pull_with_progress(DEFAULT_MODEL, folder)
    console.print(f"loading {DEFAULT_MODEL} …", style="dim")
    speculative = LLM(DEFAULT_MODEL, max_model_len=1024, max_num_seqs=1, cache_dir=folder)
    plain = speculative.with_speculation(None)
    all_same = True
    for name, prompt in PROMPTS.items():
        all_same &= _compare(console, plain, speculative, name, prompt)
    if not all_same:
        raise typer.Exit(1)


def _compare(console: Console, plain: LLM, speculative: LLM, name: str, prompt: str) -> bool:
    """Both answers to one prompt; whether every token is the same."""
    from rich.panel import Panel

    console.rule(f"[bold]{name}")
    console.print(prompt, style="italic")
    messages = [{"role": "user", "content": prompt}]
    with console.status("plain decoding …"):
        one = plain.chat(messages, PARAMS)[0].outputs[0]
    console.print(Panel(one.text, title="plain", subtitle=_figures(one)))
    with console.status("speculative decoding …"):
        other = speculative.chat(messages, PARAMS)[0].outputs[0]
    console.print(
        Panel(_by_origin(speculative, other), title="speculative", subtitle=_figures(other))
    )
    same = one.token_ids == other.token_ids
    saved = one.stats["target_passes"] - other.stats["target_passes"]
    console.print(
        f"{'identical' if same else 'DIFFERENT'}: {len(one.token_ids)} tokens, "
        f"{saved} of {one.stats['target_passes']} target passes saved",
        style="bold green" if same else "bold red",
    )
    return same


def _figures(output: CompletionOutput) -> str:
    stats = output.stats
    return (
        f"{stats['target_passes']} passes for {stats['emitted_tokens']} tokens, "
        f"{stats['seconds']:.1f} s"
    )


def _by_origin(llm: LLM, output: CompletionOutput) -> Any:
    from rich.text import Text

    from forerun.cli.colours import STYLES

    text = Text()
    for token, origin in zip(output.token_ids, output.origins, strict=True):
        text.append(llm.tokenizer.decode([token], continuing=True), STYLES[origin])
    return text
