"""Rows of logits with all sampling options, drawn by the CUDA kernels and by `sampling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from forerun.errors import InvalidGrammar
from forerun.kernels.cuda.drawing import Drawing
from forerun.sampling import (
    Context,
    CoupledDraws,
    Noise,
    checked_argmax,
    gumbel_argmax,
    ranked_logits,
    served_logits,
)
from forerun.types import Proposal, SamplingParams, StructuredOutputsParams
from tests.kernels.sources import F32, normal

ANYTHING = StructuredOutputsParams(regex=".*")  # `EverySome` says which tokens may come
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.3},
    {"temperature": 1e-3},
    {"temperature": 50.0},
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 10**6},
    {"top_p": 0.9},
    {"top_p": 0.05},
    {"top_p": 0.999},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"temperature": 0.7, "top_k": 40, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.6, "min_p": 0.02},
    {"temperature": 0.2, "top_k": 50, "top_p": 0.95},
    {"temperature": 0.0, "repetition_penalty": 1.3, "logit_bias": {9: 3.0, 8: -1.0}},
    {"repetition_penalty": 0.7, "presence_penalty": 0.4, "frequency_penalty": 0.3, "top_k": 9},
    {"frequency_penalty": 1.7, "temperature": 0.5, "min_tokens": 5, "stop_token_ids": (8,)},
    {"min_tokens": 5, "temperature": 0.0, "logit_bias": {2: 50.0}, "top_p": 0.9},
    {"allowed_token_ids": tuple(range(3, 400, 7)), "top_p": 0.9},
    {"allowed_token_ids": (998,), "presence_penalty": 0.4, "top_k": 9},
    {"temperature": 0.0, "structured_outputs": ANYTHING},
    {"temperature": 0.8, "structured_outputs": ANYTHING},
    {"temperature": 0.8, "structured_outputs": ANYTHING, "top_k": 20, "top_p": 0.9},
    {"structured_outputs": ANYTHING, "min_p": 0.1, "allowed_token_ids": tuple(range(500))},
    {"structured_outputs": ANYTHING, "repetition_penalty": 1.2, "min_tokens": 5},
)


class EverySome:
    """A grammar that allows another part of the vocabulary after every output. A guess of 7 never
    fits; after a guess of 9 it raises, if `is_too_much`."""

    def __init__(self, vocab_size: int, *, is_too_much: bool = False) -> None:
        self._vocab_size = vocab_size
        self._is_too_much = is_too_much

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:  # noqa: ARG002
        return True

    def may_loosen(self, output: Sequence[int]) -> bool:  # noqa: ARG002
        return False

    def allowed_bits(self, output: Sequence[int], more: Sequence[int] = ()) -> bytes:
        assert 7 not in (*output[3:], *more), "behind what does not fit nobody asks"
        if self._is_too_much and 9 in more:
            raise InvalidGrammar("too much")
        allowed = np.arange(self._vocab_size) % (len(output) + len(more) + 2) == 1
        allowed[5:12], allowed[7] = True, False
        return np.packbits(allowed, bitorder="little").tobytes()

    def is_over(self, *_: Sequence[int]) -> bool:
        return False

    def num_fitting(self, _: Sequence[int], tokens: Sequence[int]) -> int:
        return [*tokens, 7].index(7)


def rows_of(num: int, vocab_size: int, scale: float) -> F32:
    """Random rows, of which a few have large numbers, ties or excluded tokens."""
    rows = scale * normal(int(scale) + num, num, vocab_size)
    rows[0::7] += 1e4
    rows[1::7] = np.round(rows[1::7])
    rows[2::7, ::3] = -np.inf
    return rows


def draws_for(
    seed: int, options: dict[str, Any], num: int, position: int = 3, vocab_size: int = 1500
) -> CoupledDraws:
    """The draws of a request with a chain of `num` - 1 guesses."""
    params = SamplingParams(**options)
    proposal = Proposal.chain(range(6, 5 + num))
    grammar: Any = EverySome(vocab_size) if params.structured_outputs else None
    context = Context((1, 2, 3, 4, 5), (7, 8, 7), grammar)
    return CoupledDraws(params, Noise(seed), position, context, (2,), proposal)


def expected(draws: CoupledDraws, rows: F32) -> list[int | None]:
    """The tokens that `sampling` draws; None after a guess that does not fit."""
    found = list[int | None]()
    for row, position in enumerate(draws.positions):
        path = draws.proposal.path_tokens(row - 1)
        if draws.context.grammar is not None and 7 in path:
            found.append(None)
            continue
        context = draws.context.extended(path)
        served: Any = ranked_logits if draws.params.temperature == 0 else served_logits
        logits = served(rows[row], draws.params, context, draws.eos_token_ids)
        if draws.params.temperature == 0:
            found.append(checked_argmax(logits))
        else:
            found.append(gumbel_argmax(logits, draws.noise, position))
    return found


def compare(drawing: Drawing, rows: F32, draws: Sequence[CoupledDraws], device: str) -> int:
    """Check that drawn tokens are `sampling`'s and that rows left to the host have their logits.
    `rows` [spans, rows of a span, V]. Returns how many rows were left."""
    num_spans, num_each, width = rows.shape
    logits = torch.tensor(rows.reshape(-1, width), device=device)
    scores = drawing.finish(logits, drawing.best(logits), [num_each] * num_spans, draws)
    num_left = 0
    for idx, one in enumerate(draws):
        part = scores[idx * num_each : (idx + 1) * num_each]
        for row, token in enumerate(expected(one, rows[idx])):
            if token is None:
                continue
            if part.token(row) is None:
                num_left += 1
                np.testing.assert_array_equal(part.row(row), rows[idx, row])
            else:
                assert part.token(row) == token, (one.params, idx, row)
    return num_left


def main() -> None:
    """Compare on a CPU, with Triton's interpreter."""
    num_rows = num_left = 0
    drawing = Drawing({"PDL": 0})
    for scale in (1.0, 4.0):
        rows = rows_of(3 * len(SAMPLINGS), 1500, scale).reshape(len(SAMPLINGS), 3, -1)
        draws = [draws_for(seed, options, 3) for seed, options in enumerate(SAMPLINGS)]
        num_left += compare(drawing, rows, draws, "cpu")
        num_rows += 3 * len(SAMPLINGS)
    assert num_left < num_rows / 3, num_left
    assert drawing.num_left == num_left
    check_what_is_left()
    check_what_is_too_much()


def check_what_is_too_much() -> None:
    """The row after a guess that is too much for the grammar is left; a bias for a token past the
    last logit does no harm."""
    rows = rows_of(3, 1500, 1.0)
    logits = torch.tensor(rows)
    for temperature in (0.0, 0.8):
        params = SamplingParams(
            temperature=temperature, structured_outputs=ANYTHING, logit_bias={1600: 5.0}
        )
        context = Context((1,), (7, 8, 7), EverySome(1500, is_too_much=True))
        draws = CoupledDraws(params, Noise(4), 3, context, (2,), Proposal.chain([6, 9]))
        drawing = Drawing({"PDL": 0})
        scores = drawing.finish(logits, drawing.best(logits), [3], [draws])
        assert [scores.token(row) is None for row in range(3)] == [False, False, True]
        np.testing.assert_array_equal(scores.row(2), rows[2])


def check_what_is_left() -> None:
    """Left to the host: broken rows, rows too close to decide, and spans without draws."""
    rows = rows_of(3, 1500, 1.0)
    rows[1, 700] = np.nan
    logits = torch.tensor(rows)
    draws = [draws_for(0, {}, 1), draws_for(0, {"temperature": 0}, 1), None]
    drawing = Drawing({"PDL": 0})
    scores = drawing.finish(logits, drawing.best(logits), [1, 1, 1], draws)
    assert scores.token(0) is not None
    assert scores.tokens is not None
    assert list(scores.tokens[1:]) == [None, None]
    np.testing.assert_array_equal(np.stack([scores.row(1), scores.row(2)]), rows[1:])
    assert (drawing.num_asked, drawing.num_left) == (2, 1)
    equal = np.full((1, 1, 1500), -np.inf, np.float32)
    equal[0, 0, :10] = 1.0  # eight of them have four fifths of the weight, but for rounding
    on_edge = [draws_for(seed, {"top_p": 0.8}, 1) for seed in range(60)]
    compare(drawing, np.tile(equal, (len(on_edge), 1, 1)), on_edge, "cpu")
    careful = Drawing({"PDL": 0}, margin=60.0)  # no two sums are so far apart
    assert compare(careful, rows[:1, None], [draws_for(0, {}, 1)], "cpu") == 1
    assert compare(careful, rows[:1, None], [draws_for(0, {"top_k": 9}, 1)], "cpu") == 1


if __name__ == "__main__":
    main()
