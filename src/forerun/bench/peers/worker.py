"""The loop inside a peer's process: one JSON line in, one JSON line out.

The workers of this folder run in a Python that has the peer installed, so they import nothing of
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
    """Answer the first line with `start`, which loads the model, and others with its handler."""
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
