"""Without a GPU, Triton's interpreter runs the kernels."""

from __future__ import annotations

from tests.gpu.interpreted_run import run_interpreted


def test_the_kernels_compute_a_model_and_its_trees() -> None:
    run_interpreted("tests.gpu.interpreted")


def test_hidden_states_come_out_and_heads_take_them_in() -> None:
    run_interpreted("tests.gpu.interpreted_heads")
