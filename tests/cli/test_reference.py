"""The committed reference lists what the command line accepts."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_committed_reference_is_what_the_tool_prints() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "cli_reference.py"))
    printed = tool["reference"]()
    assert printed == tool["PAGE"].read_text(encoding="utf-8"), "run: python tools/cli_reference.py"
