"""Without a GPU, Triton's interpreter runs the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest


@pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None, reason="needs torch and Triton"
)
def test_the_kernels_compute_a_model_and_its_trees() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "tests.gpu.interpreted"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
