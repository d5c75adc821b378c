"""JSON files beside the weights; whatever is wrong with them raises `InvalidWeights`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from forerun.errors import InvalidWeights
from forerun.files import MAX_JSON_BYTES, read_bytes


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in `path`."""
    try:
        return json_object(read_bytes(path, MAX_JSON_BYTES), path)
    except OSError as error:
        raise InvalidWeights(f"{path} cannot be read: {error.strerror}; check it.") from None


def json_object(text: str | bytes, source: object) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidWeights(
            f"{source} is not valid JSON ({error}); get or write it anew."
        ) from None
    if not isinstance(value, dict):
        raise InvalidWeights(f"{source} is not a JSON object; get or write it anew.")
    return value


def read_json_if_there(path: Path) -> dict[str, Any]:
    """Read the JSON object in `path`; an empty one if there is no such file."""
    return read_json(path) if path.is_file() else {}
