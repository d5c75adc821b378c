"""Passes that begin before they are asked for compute what is then asked for."""

from __future__ import annotations

import pytest

from tests.gpu.interpreted_run import run_interpreted


def test_without_a_gpu_the_interpreter_begins_early() -> None:
    run_interpreted("tests.gpu.begun_early")


@pytest.mark.slow
def test_without_a_gpu_the_interpreter_begins_rounds_early() -> None:
    run_interpreted("tests.gpu.rounds_begun_early")


@pytest.mark.slow
def test_a_round_that_was_begun_for_one_who_met_others_or_went_is_for_nobody() -> None:
    run_interpreted("tests.gpu.rounds_interrupted")
