"""Logs one line of JSON for each HTTP request, without any text of prompts and answers."""

from __future__ import annotations

import json
import time
from typing import IO, Any

from starlette.requests import Request

from forerun.engine.request.request import Request as Answered


class AccessLog:
    def __init__(self, out: IO[str] | None) -> None:
        self._out = out  # None: no log

    def write(
        self, request: Request, method: str, request_id: str, status: int, seconds: float
    ) -> None:
        if self._out is None:
            return
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "request_id": request_id,
            "client": request.client.host if request.client else None,
            "method": method,
            "path": request.scope["path"][:200],
            "status": status,
            "seconds": round(seconds, 6),
            **_figures(request),
        }
        print(json.dumps(line), file=self._out, flush=True)


def _figures(request: Request) -> dict[str, Any]:
    group = getattr(request.state, "group", None)
    if group is None:
        return {}
    usage = group.usage
    return {
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": group.num_generated,
        "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
        "accepted_tokens": usage["forerun"]["accepted_tokens"],
        "draft_tokens": usage["forerun"]["draft_tokens"],
        "finish_reasons": [_finish_reason(one) for one in group.requests],
    }


def _finish_reason(request: Answered) -> str:
    """Return the reason's name in the metrics; a request that was cancelled is an `abort`."""
    return request.finish_reason or ("error" if request.error is not None else "abort")
