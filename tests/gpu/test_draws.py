"""Draws on the device are `sampling`'s, token by token."""

from __future__ import annotations

import pytest

from tests.gpu.interpreted_run import run_interpreted

VOCAB_SIZES = (49152, 128256, 1000)


def test_without_a_gpu_the_interpreter_draws() -> None:
    run_interpreted("tests.gpu.drawn")


@pytest.mark.gpu
@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
@pytest.mark.parametrize("scale", [1.0, 3.0, 8.0])
def test_every_draw_is_that_of_sampling(vocab_size: int, scale: float) -> None:
    from forerun.kernels.cuda.drawing import Drawing
    from tests.gpu.drawn import SAMPLINGS, compare, draws_for, rows_of

    drawing = Drawing({"PDL": 0}, "cuda")
    num_each = 4 if vocab_size < 100_000 else 2  # more logits than are changed in one pass
    for first in range(0, 30, 10):
        rows = rows_of(num_each * len(SAMPLINGS), vocab_size, scale)
        draws = [
            draws_for(first + seed, one, num_each, vocab_size=vocab_size)
            for seed, one in enumerate(SAMPLINGS)
        ]
        compare(drawing, rows.reshape(len(SAMPLINGS), num_each, -1), draws, "cuda")
    assert drawing.num_asked == 3 * num_each * len(SAMPLINGS)
    if scale > 3:  # flatter rows have more tokens near the best than are gathered
        assert drawing.num_left < drawing.num_asked / 10
