"""The loop inside a peer's process: one JSON line in, one JSON line out.

This folder's workers run in whatever Python has the peer installed, so they import nothing of
Forerun.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Answer = dict[str, Any]
Handler = Callable[[dict[str, Any]], Answer]


def serve(start: Callable[[dict[str, Any]], tuple[Answer, Handler]]) -> None:
    """`start` loads the model from the first line and says what it is; then questions follow."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native code that prints must not garble the replies
    handler: Handler | None = None
    for line in sys.stdin:
        try:
            question = json.loads(line)
            if handler is None:
                reply, handler = start(question)
            else:
                reply = handler(question)
        except ModuleNotFoundError as error:
            reply = {"missing": error.name}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)
