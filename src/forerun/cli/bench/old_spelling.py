"""How `forerun bench` was spelled in 0.1, understood for one more version."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from forerun.cli.terminal.output import say


class BenchGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, current_spelling(args))


def current_spelling(args: list[str]) -> list[str]:
    """Without a subcommand it is `speculation`; `--show FILE` is `show FILE`. Says so on stderr."""
    is_bare = not args or (args[0].startswith("-") and args[0] != "--help")
    if not is_bare and args[0] != "speculation":
        return args
    options = args if is_bare else args[1:]
    separate = [part for arg in options for part in _without_equals(arg)]
    if "--show" in separate:
        separate.remove("--show")  # what follows it is the argument of `show`
        return _said("--show FILE", "show FILE", ["show", *separate])
    return _said("…", "speculation …", ["speculation", *args]) if is_bare else args


def _without_equals(arg: str) -> list[str]:
    return arg.split("=", 1) if arg.startswith("--show=") else [arg]


def _said(old: str, new: str, args: list[str]) -> list[str]:
    say(
        f"note: `forerun bench {old}` is now `forerun bench {new}`; "
        "the next version takes the new spelling alone.",
        err=True,
    )
    return args
