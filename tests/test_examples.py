"""Every script in examples/ runs as a reader would run it, on a model of a few kilobytes."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example(script: Path, tiny_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, script, tiny_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
