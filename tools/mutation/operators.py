"""Mutation operators: the places of a source that they change, and the changed text.

A mutant replaces one stretch of the source, so that everything else keeps its bytes and lines.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mutant:
    """One mistake in one file. `code` is the original line."""

    path: str
    line: int
    code: str
    operator: str
    old: str
    new: str
    start: int  # offsets into the source's UTF-8 bytes
    end: int

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


_BOUNDARY: Final = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_OPPOSITE: Final = {
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC: Final = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.Pow: "*",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.BitXor: "&",
}
_TWINS: Final = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "argmax": "argmin",
    "argmin": "argmax",
}


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Return every mutant of a file, in the order of its text."""
    return sorted(_Finder(path, source).found(), key=lambda one: (one.start, one.operator, one.new))


def fingerprint(source: str) -> str:
    """Return a hash that ignores comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match getattr(node, "body", None):
            case [ast.Expr(value=ast.Constant()), *_] as body:
                body[0] = ast.Pass()
    return hashlib.blake2b(ast.dump(tree).encode(), digest_size=8).hexdigest()


class _Finder:
    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source.encode()
        self._lines = source.splitlines()
        self._tree = ast.parse(source)
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def found(self) -> list[Mutant]:
        seen: dict[tuple[int, int, str], Mutant] = {}
        for operator, node, new in self._walk(self._tree):
            mutant = self._mutant(operator, node, new)
            if mutant.old != new:
                seen.setdefault((mutant.start, mutant.end, new), mutant)
        return list(seen.values())

    def _mutant(self, operator: str, node: ast.expr | ast.stmt, new: str) -> Mutant:
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: PT018
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        code = self._lines[node.lineno - 1].strip()
        old = self._source[start:end].decode()
        return Mutant(self._path, node.lineno, code, operator, old, new, start, end)

    def _walk(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
        if isinstance(node, ast.stmt):
            yield from _of_statement(node)
        elif isinstance(node, ast.expr):
            yield from _of_expression(node)
        for child in _children(node):
            yield from self._walk(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children whose effect tests can see: no types, imports or error messages."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Raise() | ast.JoinedStr():
            return
        case ast.FunctionDef():
            yield from (value for value in (*node.args.defaults, *node.args.kw_defaults) if value)
            yield from node.body
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign():
            if node.value:
                yield node.value
        case ast.Assign(targets=[ast.Name(id=name)]) if name == "__all__" or name[0].isupper():
            return  # an alias of a type
        case ast.Assert():
            yield node.test
        case ast.keyword(arg="strict"):
            return  # a check: the lengths are equal
        case ast.Call(func=ast.Name(id="TypeVar" | "cast")):
            return
        case _:
            yield from ast.iter_child_nodes(node)


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield "drop statement", node, "pass"
        case ast.Assert():
            yield "drop assertion", node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "drop statement", node, "pass"
        case ast.Continue():
            yield "leave the loop", node, "break"
        case ast.Break():
            yield "go on in the loop", node, "continue"
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "return nothing", node, "return None"
        case ast.If() | ast.While():
            if not (isinstance(node.test, ast.Constant) or _negation(node.test)):
                yield "negate condition", node.test, f"(not ({ast.unparse(node.test)}))"


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _negation(node: ast.expr) -> bool:
    """Whether another operator already negates it."""
    single = isinstance(node, ast.Compare) and len(node.ops) == 1
    return single or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr, str]]:
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            left, right = ast.unparse(node.left), ast.unparse(node.right)
            yield "swap arithmetic", node, f"(({left}) {_ARITHMETIC[type(node.op)]} ({right}))"
        case ast.BoolOp():
            word = " or " if isinstance(node.op, ast.And) else " and "
            parts = word.join(f"({ast.unparse(value)})" for value in node.values)
            yield "swap and, or", node, f"({parts})"
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "drop not or minus", node, f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool() as value):
            yield "negate constant", node, str(not value)
        case ast.Constant(value=int() as value):
            yield "off by one", node, str(value + 1)
        case ast.Constant(value=float() as value):
            yield "change number", node, repr(value * 2 if value else 1.0)
        case ast.Slice():
            for bound in (node.lower, node.upper):
                if bound is not None and not isinstance(bound, ast.Constant):
                    yield "off by one", bound, f"({ast.unparse(bound)}) + 1"
        case ast.IfExp():
            test, then, other = map(ast.unparse, (node.test, node.body, node.orelse))
            yield "swap branches", node, f"(({other}) if ({test}) else ({then}))"
        case ast.Call():
            yield from _called(node)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            yield from _unfiltered(node)


def _compared(node: ast.Compare) -> Iterator[tuple[str, ast.expr, str]]:
    for idx, op in enumerate(node.ops):
        if type(op) in _BOUNDARY:
            yield "move boundary", node, _with_operator(node, idx, _BOUNDARY[type(op)])
        yield "opposite comparison", node, _with_operator(node, idx, _OPPOSITE[type(op)])


def _with_operator(node: ast.Compare, changed: int, symbol: str) -> str:
    text = f"({ast.unparse(node.left)})"
    for idx, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
        pair = ast.unparse(ast.Compare(ast.Name("x"), [op], [ast.Name("y")]))
        text += f" {symbol if idx == changed else pair[1:-1].strip()} ({ast.unparse(right)})"
    return f"({text})"


def _called(node: ast.Call) -> Iterator[tuple[str, ast.expr, str]]:
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if name in _TWINS:
        func = ast.unparse(node.func)
        renamed = func[: len(func) - len(name)] + _TWINS[name]
        yield "swap min, max", node.func, renamed
        return  # their arguments have no order
    for idx in range(len(node.args) - 1):
        first, second = node.args[idx : idx + 2]
        if isinstance(first, ast.Starred) or isinstance(second, ast.Starred):
            continue
        args = list(node.args)
        args[idx], args[idx + 1] = second, first
        swapped = ast.Call(node.func, args, node.keywords)
        yield "swap arguments", node, ast.unparse(swapped)


def _unfiltered(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
) -> Iterator[tuple[str, ast.expr, str]]:
    for loop in node.generators:
        for test in loop.ifs:
            yield "drop filter", test, "True"
