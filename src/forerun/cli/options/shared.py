"""Options that several commands share, written once.

A bundle is a function whose parameters are the options and which returns what they mean;
`takes(name=bundle)` gives a command those options and passes it the result as `name`;
`only(bundle, …)` is a bundle with fewer of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

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
            command(**given, **values)

        _sign(run, own + [p for options in shared.values() for p in options.values()])
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return decorate


def only(bundle: Callable[..., Value], *names: str) -> Callable[..., Value]:
    """The same bundle with these options alone; the others keep their defaults."""
    options = _parameters(bundle)

    def fewer(**given: Any) -> Value:
        return bundle(**given)

    _sign(fewer, [options[name] for name in names])
    return fewer


def _sign(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    )


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function, eval_str=True).parameters)
