"""JSON files beside the weights, read with sentences for errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from forerun.errors import InvalidWeights
from forerun.files import MAX_JSON_BYTES, read_bytes


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`."""
    try:
        value = json.loads(read_bytes(path, MAX_JSON_BYTES))
    except OSError as error:
        raise InvalidWeights(f"{path} cannot be read ({error.strerror}); check it.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidWeights(f"{path} is not valid JSON ({error}); download it again.") from None
    if not isinstance(value, dict):
        raise InvalidWeights(f"{path} is not a JSON object; download it again.")
    return value


def read_json_if_there(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, or an empty one."""
    return read_json(path) if path.is_file() else {}
