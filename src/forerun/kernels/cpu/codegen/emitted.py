"""Functions for compiled code whose bodies are written in IR."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from forerun.kernels.cpu.codegen.lanes import F32, Value

Emit = Callable[..., Value | None]  # (builder, *arguments) -> the result, or None for void


def emitted(result: Any, *arguments: Any) -> Callable[[Emit], Any]:
    """Make an intrinsic of Numba, with fixed types, from a function that emits its code."""

    def decorate(emit: Emit) -> Any:
        def typed(_context: Any, *_arguments: Any) -> Any:
            def codegen(context: Any, builder: Any, _signature: Any, args: list[Value]) -> Value:
                value = emit(builder, *args)
                return context.get_dummy_value() if value is None else value

            return result(*arguments), codegen

        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        typed.__signature__ = _positional(1 + len(arguments))  # type: ignore[attr-defined]
        return intrinsic(typed)

    return decorate


def outlined(result: Any, *arguments: Any) -> Callable[[Emit], Any]:
    """As `emitted`, but not inlined: long code exists once, however often it is called."""
    kind = F32 if result is types.float32 else ir.VoidType()

    def decorate(emit: Emit) -> Any:
        def called(b: Any, *args: Value) -> Value | None:
            function = b.module.globals.get(emit.__qualname__)
            if function is None:
                signature = ir.FunctionType(kind, [arg.type for arg in args])
                function = ir.Function(b.module, signature, emit.__qualname__)
                function.linkage = "internal"
                function.attributes.add("noinline")
                inside = ir.IRBuilder(function.append_basic_block())
                found = emit(inside, *function.args)
                inside.ret_void() if found is None else inside.ret(found)
            found = b.call(function, args)
            return None if isinstance(kind, ir.VoidType) else found

        called.__name__, called.__doc__ = emit.__name__, emit.__doc__
        return emitted(result, *arguments)(called)

    return decorate


def _positional(count: int) -> Signature:
    """Return a signature of `count` plain parameters: Numba would treat *args as one tuple."""
    return Signature(
        [Parameter(f"arg{idx}", Parameter.POSITIONAL_OR_KEYWORD) for idx in range(count)]
    )
