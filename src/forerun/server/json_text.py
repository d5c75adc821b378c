"""Parses and writes strict JSON: in UTF-8, without NaN and Infinity."""

from __future__ import annotations

import json
import math
from codecs import BOM_UTF8
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from forerun.server.errors import bad_request

MAX_DEPTH: Final = 256  # levels of nesting
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def to_json(value: Any) -> bytes:
    """Write JSON. Half a surrogate pair, which a client may send in a name, is escaped again."""
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")


def parse_json(found: bytes) -> Any:
    try:
        text = found.removeprefix(BOM_UTF8).decode("utf-8")
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if found.count(b"[") + found.count(b"{") > MAX_DEPTH:
            _check_depth(value)
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8 (byte {error.start}); encode it.") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply; send flatter JSON.") from None
    except ValueError as error:
        is_long = "sys.set_int_max_str_digits" in str(error)
        told = "a number has thousands of digits" if is_long else error
        raise bad_request(f"the body is not JSON ({told}); mend it.") from None
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is beyond all numbers")
    return number


def _check_depth(value: Any) -> None:
    """Raise if `value` is nested too deep: answers and templates nest what they repeat deeper."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [each for part in level for each in _parts(part) if isinstance(each, dict | list)]
        if not level:
            return
    raise RecursionError


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
