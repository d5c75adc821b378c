"""JSON by the letter, read and written: NaN and Infinity are none, and text is UTF-8."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from forerun.server.errors import bad_request

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def to_json(value: Any) -> bytes:
    """Half a surrogate, which a client may send in a name, goes back as it came: escaped."""
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")


def parse_json(found: bytes) -> Any:
    try:
        return json.loads(found.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8 (byte {error.start}); encode it.") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply; send flatter JSON.") from None
    except ValueError as error:  # also a number with thousands of digits
        raise bad_request(f"the body is not JSON ({error}); mend it.") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
