"""The examples: the client runs against a server.

The code-editing loop needs a longer context than a model of a few kilobytes has.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.server.serving import Running

EXAMPLES = Path(__file__).parents[2] / "examples" / "server"


def test_the_official_client(server: Running) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "openai_client.py"],
        env={**os.environ, "FORERUN_URL": f"{server.url}/v1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
