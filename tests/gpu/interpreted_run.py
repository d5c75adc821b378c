"""Runs a module that tests kernels on the CPU, in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest


def run_interpreted(module: str) -> None:
    if find_spec("torch") is None or find_spec("triton") is None:
        pytest.skip("needs torch and Triton")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
