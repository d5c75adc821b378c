"""Hidden states that the host reads late are those of the pass that handed them out."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from forerun.kernels.cuda.heads.given import HandedOut, LateRows
from forerun.kernels.cuda.rounds.round import Features, RoundGraph

NUM_LAYERS, NUM_ROWS, WIDTH = 2, 3, 4


def states(number: int) -> Any:
    return torch.full((NUM_LAYERS, NUM_ROWS, WIDTH), float(number))


@dataclass
class Verification:
    """A pass whose n-th replay hands out hidden states of the value n."""

    features: Features
    num_replays: int = 0

    def replay(self) -> None:
        self.num_replays += 1
        self.features.push(states(self.num_replays))


def round_graph() -> RoundGraph:
    features, nothing = Features(states(0)), None
    shapes = ((NUM_ROWS, WIDTH),) * NUM_LAYERS
    sent = SimpleNamespace(has_slots=lambda _: True, send=lambda _: None)
    handed_out = HandedOut(features.latest.view(-1), shapes)
    verify = Verification(features)
    parts: list[Any] = [sent, *[nothing] * 4, handed_out, nothing, verify, (), features]
    return RoundGraph(*parts)


def number_in(rows: Any) -> float:
    (number,) = {value for each in rows.views() for value in each.ravel().tolist()}
    return float(number)


def test_a_head_that_was_not_asked_reads_behind_two_more_verifications() -> None:
    """When the head hears of the second verification, the third has already begun."""
    graph = round_graph()
    first, second, third = (graph.run_verify() for _ in range(3))
    assert [number_in(kept) for kept in (first, second, third)] == [1.0, 2.0, 3.0]
    graph.run_verify()
    assert number_in(second) == 2.0
    with pytest.raises(AssertionError, match="written over"):
        number_in(first)


def test_a_pass_in_between_makes_kept_states_a_verification_older() -> None:
    graph, follow = round_graph(), SimpleNamespace()
    first = graph.run_verify()
    shapes = ((NUM_ROWS, WIDTH),) * NUM_LAYERS
    graph.send(follow, HandedOut(states(9).view(-1), shapes))  # type: ignore[arg-type]
    assert graph.features is not None
    assert graph.features.latest.unique().tolist() == [9.0]
    assert number_in(first) == 1.0
    graph.run_verify()
    assert number_in(first) == 1.0
    graph.send(follow, graph.handed_out)  # type: ignore[arg-type]  # after its own: nothing to do
    assert number_in(first) == 1.0


def test_what_was_sent_out_stays_while_the_same_pass_runs_again() -> None:
    handed_out = HandedOut(states(0).view(-1), ((NUM_ROWS, WIDTH),) * NUM_LAYERS)
    late = list[LateRows]()
    for number in range(9):
        handed_out.data.fill_(number)
        late.append(LateRows(handed_out.send()))
    assert [rows[1][2, 3] for rows in late] == list(range(9))
