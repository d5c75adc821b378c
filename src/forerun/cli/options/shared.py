"""Options that several commands share, each declared once.

A bundle is a function whose parameters are options; it returns the value that they make.
`bundle(Config, panel)` makes one of a dataclass, with an option for each of its `option` fields.
`@filled_by(Config, panel=…)` adds such options to a function's own parameters, and passes the
values as `**rest`. `takes(name=bundle)` gives a command the bundle's options, and passes it the
value as `name`. `only(bundle, …)` and `without(bundle, …)` are bundles with fewer options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, fields
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from forerun.interrupts import Uninterrupted

_KEPT: ContextVar[list[object]] = ContextVar("what the command under way keeps")
Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")


def takes(**bundles: Callable[..., Any]) -> Callable[[Command], Callable[..., None]]:
    def decorate(command: Command) -> Callable[..., None]:
        own = [p for name, p in _parameters(command).items() if name not in bundles]
        shared = {name: _parameters(bundle) for name, bundle in bundles.items()}

        def run(**given: Any) -> None:
            values = {
                name: bundles[name](**{option: given.pop(option) for option in options})
                for name, options in shared.items()
            }
            with _holding():
                command(**given, **values)

        _sign(run, own + [p for options in shared.values() for p in options.values()])
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return decorate


@contextmanager
def _holding() -> Iterator[None]:
    """Release what a command `keep`s when it ends, and hold ^C back meanwhile."""
    kept = list[object]()
    before = _KEPT.set(kept)
    try:
        yield
    finally:
        with Uninterrupted():
            _KEPT.reset(before)
            kept.clear()


def keep(thing: Value) -> Value:
    """Keep `thing` alive until the command ends, where ^C is held back: a KeyboardInterrupt that is
    raised while a model's memory is freed would be printed and ignored."""
    _KEPT.get().append(thing)
    return thing


def bundle(config: Callable[..., Value], panel: str | None = None) -> Callable[..., Value]:
    return filled_by(config, panel=panel)(lambda **rest: config(**rest))


def filled_by(
    *configs: Callable[..., Any], panel: str | None
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        every = _parameters(function).values()
        own = {p.name: p for p in every if p.kind is not inspect.Parameter.VAR_KEYWORD}
        more = {
            field.name: _parameter(field, config, panel)
            for config in configs
            for field in fields(config)  # type: ignore[arg-type]
            if "help" in field.metadata and field.name not in own
        }
        names = {parameter.name: name for name, parameter in more.items()}

        def run(**given: Any) -> Value:
            # Typer passes an empty list for a repeatable option that was not given.
            told = {name: value for name, value in given.items() if value != []}
            return function(**{names.get(name, name): value for name, value in told.items()})

        _sign(run, [*own.values(), *more.values()])
        return run

    return decorate


def parted(config: type[Value], given: dict[str, Any]) -> tuple[Value, dict[str, Any]]:
    """Make a config of its own part of what is given; return it and the rest."""
    names = {field.name for field in fields(config)}  # type: ignore[arg-type]
    own = {name: value for name, value in given.items() if name in names}
    return config(**own), {name: value for name, value in given.items() if name not in names}


def only(bundle: Callable[..., Value], *names: str) -> Callable[..., Value]:
    """Return the bundle with only these options; the others keep their defaults."""
    options = _parameters(bundle)

    def fewer(**given: Any) -> Value:
        return bundle(**given)

    _sign(fewer, [options[name] for name in names])
    return fewer


def without(bundle: Callable[..., Value], *names: str) -> Callable[..., Value]:
    return only(bundle, *(name for name in _parameters(bundle) if name not in names))


def _parameter(field: Field[Any], config: Any, panel: str | None) -> inspect.Parameter:
    hint: Any = get_type_hints(config)[field.name] if isinstance(field.type, str) else field.type
    default = field.default
    if isinstance(hint, UnionType) and str in get_args(hint):  # the command line gives text
        hint = str | None if type(None) in get_args(hint) else str
    if items := _items(hint):
        hint, default = list[items] | None, None  # type: ignore[valid-type]
    about = field.metadata
    option = typer.Option(
        *flags_of(field),
        help=about["help"],
        metavar=about["metavar"],
        rich_help_panel=panel,
        show_envvar=False,  # narrow terminals cut the names; the help states the rule
    )
    return inspect.Parameter(
        _name(field),
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[hint, option],
    )


def _items(hint: Any) -> Any:
    """Return T of a hint `tuple[T, ...]`; None for other hints."""
    found = next((h for h in (hint, *get_args(hint)) if get_origin(h) is tuple), None)
    return get_args(found)[0] if get_args(found)[1:] == (...,) else None


def flags_of(field: Field[Any]) -> tuple[str, ...]:
    """Return the option's flags on the command line."""
    flag = _name(field).replace("_", "-")
    usual = f"--{flag}/--no-{flag}" if field.default is True else f"--{flag}"
    return field.metadata["flags"] or (usual,)


def _name(field: Field[Any]) -> str:
    """Return the option's name: the field's, without the suffix `_s` of seconds."""
    return field.name.removesuffix("_s")


def _sign(function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> None:
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    )


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function, eval_str=True).parameters)
