"""Options that several commands share, written once.

A bundle is a function whose parameters are the options and which returns what they mean;
`takes(name=bundle)` gives a command those options and passes it the result as `name`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Command = TypeVar("Command", bound=Callable[..., Any])


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

        parameters = own + [p for options in shared.values() for p in options.values()]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        )
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return decorate


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function, eval_str=True).parameters)
