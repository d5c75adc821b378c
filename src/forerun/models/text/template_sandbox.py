"""The sandbox that chat templates run in: jinja's, with bounds on loops and the size of values.

A template comes with a model and is not trusted. Jinja's sandbox keeps it away from Python's
internals; this one also bounds every operation that could multiply the size of a value.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_CHARS: Final = 16_000_000
MAX_STEPS: Final = 1_000_000  # loop turns over `range` in one rendering
MAX_SECONDS: Final = 10.0

_MAX_DIGITS: Final = 1000  # largest base or exponent of a power
_WIDE_FORMAT: Final = re.compile(r"%[^a-zA-Z%]*(?:\d{4}|\*)|:[^}]*(?:\d{4}|\{)")


class _GenerationBlock(Extension):
    """`{% generation %} … {% endgeneration %}`, which marks text for training: just its body."""

    tags = {"generation"}  # noqa: RUF012  (jinja2's own declaration)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _BoundedCode(CodeGenerator):
    """Compiles `a ~ b` to a bounded join."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.join_bounded((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """An environment for one template; `start` resets the limits before each rendering."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})
    code_generator_class = _BoundedCode

    def __init__(self) -> None:
        extensions: list[Any] = ["jinja2.ext.loopcontrols", _GenerationBlock]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self.filters = {name: _bounded(name, run) for name, run in self.filters.items()}
        self.globals = {"range": self._range, "dict": dict, "namespace": Namespace}
        self._deadline = 0.0
        self._steps_left = 0

    def start(self) -> None:
        self._deadline = time.monotonic() + MAX_SECONDS
        self._steps_left = MAX_STEPS

    def check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise SecurityError(f"it ran for more than {MAX_SECONDS:.0f} s")

    def concat(self, parts: Iterable[str]) -> str:
        return _join(parts)

    def join_bounded(self, parts: Iterable[Any]) -> str:
        values = list(parts)
        _check_size(sum(_size(value) for value in values))
        return str_join(values)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self.check_time()
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str):
            _check_operation(name, owner, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Jinja's guarded `str.format`, refused where a field asks for a huge width."""
        if getattr(value, "__name__", "") in ("format", "format_map"):
            _check_operation("format", getattr(value, "__self__", None), (), {})
        return super().wrap_str_format(value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise SecurityError(f"it reached for {attribute!r} of {type(obj).__name__}")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.check_time()
        _check_operation(operator, left, (right,), {})
        return super().call_binop(context, operator, left, right)

    def _range(self, *args: int) -> range:
        turns = range(*args)
        self._steps_left -= len(turns)
        if self._steps_left < 0:
            raise SecurityError(f"it loops more than {MAX_STEPS} times")
        return turns


def _bounded(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter `run` with a check that refuses to build huge values."""

    @functools.wraps(run)
    def checked(*args: Any, **kwargs: Any) -> Any:
        is_passed_context = hasattr(run, "jinja_pass_arg")
        values = args[1:] if is_passed_context else args
        _check_operation(name, values[0] if values else None, values[1:], kwargs)
        return run(*args, **kwargs)

    return checked


def _check_operation(name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise `SecurityError` if the result of an operator, method or filter could be huge."""
    others = [*args, *kwargs.values()]
    if name == "+":
        _check_size(sum(_size(item) for item in (value, *others)))
    elif name == "*":
        _check_size(max(map(_size, (value, *others))) * max(map(_number, (value, *others))))
    elif name == "**":
        _check_size(0 if max(map(_number, (value, *others))) <= _MAX_DIGITS else MAX_CHARS + 1)
    elif name in ("replace", "join"):
        _check_size(_size(value) * max(map(_size, others), default=0))
    elif name in ("%", "format", "format_map") and isinstance(value, str):
        _check_size(MAX_CHARS + 1 if _WIDE_FORMAT.search(value) else 0)
    else:
        _check_size(max(map(_number, others), default=0))


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _number(value: Any) -> float:
    return abs(value) if isinstance(value, int | float) else 0


def _check_size(size: float) -> None:
    if size > MAX_CHARS:
        raise SecurityError("it built a huge value")


def _join(parts: Iterable[str]) -> str:
    """Join strings within bounds."""
    kept, num_chars = [], 0
    for part in parts:
        num_chars += len(part)
        _check_size(num_chars)
        kept.append(part)
    return "".join(kept)
