"""Colours for the origins of tokens, and a trace of rounds like the paper's Figure 1."""

from __future__ import annotations

from rich.text import Text

from forerun.engine import StreamEvent
from forerun.engine.step import Round
from forerun.models.text.tokenizer import Tokenizer
from forerun.types import ROOT, Origin

STYLES = {
    Origin.ACCEPTED: "green",
    Origin.RECOVERED: "blue",
    Origin.BONUS: "cyan",
    Origin.PLAIN: "default",
}
REJECTED = "red strike"


def coloured(event: StreamEvent) -> Text:
    return Text.assemble(*((piece, STYLES[origin]) for piece, origin in event.pieces))


def trace_line(tokenizer: Tokenizer, done: Round, number: int, *, colour: bool) -> Text:
    """Return a line for one round: its guesses, the target's own token, the choice and its reason.

    Without colour, accepted guesses are marked ✓, rejected ones ✗, and the target's own token →.
    """

    def shown(token: int) -> str:
        return tokenizer.decode([token], skip_special=False, continuing=True).replace("\n", "⏎")

    verdict, proposal = done.verdict, done.proposal
    line = Text(f"{number:4d} ")

    def add(mark: str, token: int, style: str) -> None:
        line.append(shown(token) if colour else f" {mark}{shown(token)!r}", style)

    def add_refused(node: int, accepted: int | None) -> None:
        """Add the guesses below `node` that were rejected."""
        for guess in proposal.tree.children(node):
            if guess != accepted:
                add("✗", proposal.tokens[guess], REJECTED)

    node = ROOT
    for accepted in verdict.path:
        add_refused(node, accepted)
        add("✓", proposal.tokens[accepted], STYLES[Origin.ACCEPTED])
        node = accepted
    if verdict.final is not None:
        add_refused(node, None)
        add("→", verdict.tokens[-1], STYLES[verdict.final])
    if done.choice is not None:
        line.append(f"  ({done.choice})", "dim")
    return line
