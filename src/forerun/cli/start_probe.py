"""The command line as it is, with a note left behind: what it took, and torch or not.

python -m forerun.cli.start_probe NOTE generate "Once upon a time"
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

from forerun.cli import main


def peak_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """The most memory this process ever held, mapped files included; None where nobody counts.

    Not `ru_maxrss`: that includes whoever started the process.
    """
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024


if __name__ == "__main__":
    note = Path(sys.argv.pop(1))
    try:
        main()
    finally:
        found = {
            "peak_bytes": peak_bytes(),
            "cpu_s": time.process_time(),
            "torch": "torch" in sys.modules,
        }
        note.write_text(json.dumps(found))
