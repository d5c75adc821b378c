"""The memory of KV rows."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKING = """
import os
from forerun.kernels import AttentionShape
from forerun.kernels.cpu.attention.kv_store import KVStore

store = KVStore.new(AttentionShape(1, 1, 16), 1, 8, "float32")
store.k[:] = 1
child = os.fork()
if child == 0:
    store.k[:] = 2
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert (store.k == 1).all(), store.k
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked on Windows")
def test_a_forked_process_has_rows_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKING], check=True)
