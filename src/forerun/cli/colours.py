"""How a token's origin looks on a terminal; the paper's Figure 1 in its colours."""

from __future__ import annotations

from rich.text import Text

from forerun.engine import StreamEvent
from forerun.engine.step import Round
from forerun.models.tokenizer import Tokenizer
from forerun.types import ROOT, Origin

STYLES = {
    Origin.ACCEPTED: "green",
    Origin.RECOVERED: "blue",
    Origin.BONUS: "cyan",
    Origin.PLAIN: "default",
}
REJECTED = "red strike"
LEGEND = "green accepted · blue corrected · cyan bonus"


def coloured(event: StreamEvent) -> Text:
    return Text.assemble(*((piece, STYLES[origin]) for piece, origin in event.pieces))


def trace_line(tokenizer: Tokenizer, done: Round, number: int, *, colour: bool) -> Text:
    """One round: what held, what was refused, what took its place.

    Without colour: ✓ before accepted, ✗ before refused, → before the target's own token.
    """

    def shown(token: int) -> str:
        return tokenizer.decode([token], skip_special=False, continuing=True).replace("\n", "⏎")

    verdict, proposal = done.verdict, done.proposal
    line = Text(f"{number:4d} ")

    def add(mark: str, token: int, style: str) -> None:
        line.append(shown(token) if colour else f" {mark}{shown(token)!r}", style)

    node = ROOT
    for node in verdict.path:
        add("✓", proposal.tokens[node], STYLES[Origin.ACCEPTED])
    for refused in _branch_below(done, node):
        add("✗", proposal.tokens[refused], REJECTED)
    if verdict.final is not None:
        add("→", verdict.tokens[-1], STYLES[verdict.final])
    return line


def _branch_below(done: Round, node: int) -> list[int]:
    """The guesses that were refused: all nodes below the last accepted one."""
    tree = done.proposal.tree
    below: set[int] = {node}
    for child, parent in enumerate(tree.parents):
        if parent in below:
            below.add(child)
    return sorted(below - {node})
