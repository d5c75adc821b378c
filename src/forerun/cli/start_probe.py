"""Run the command line, then write to a file what it took: memory, CPU time, when the weights were
loaded, and whether torch was imported.

python -m forerun.cli.start_probe NOTE generate "Once upon a time"
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from forerun.cli import main
from forerun.models.llama import LlamaModel


def peak_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Return the most memory this process ever held, mapped files included; None if not known.

    Not `ru_maxrss`: that includes the memory of the process that started this one.
    """
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024


class NotedModel(LlamaModel):
    """A `LlamaModel` that notes when the first one was loaded, by `time.perf_counter`."""

    loaded_at: float | None = None

    @classmethod
    def load(cls, *args: Any, **keywords: Any) -> LlamaModel:
        model = LlamaModel.load(*args, **keywords)
        NotedModel.loaded_at = NotedModel.loaded_at or time.perf_counter()
        return model


if __name__ == "__main__":
    note = Path(sys.argv.pop(1))
    import forerun.engine.api.llm as llm

    vars(llm)["LlamaModel"] = NotedModel  # only notes the time
    try:
        main()
    finally:
        found = {
            "peak_bytes": peak_bytes(),
            "cpu_s": time.process_time(),
            "torch": "torch" in sys.modules,
            "loaded_at": NotedModel.loaded_at,
        }
        note.write_text(json.dumps(found))
