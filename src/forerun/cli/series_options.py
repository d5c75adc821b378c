"""The options of `forerun bench startup`, `batch` and `parity`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from forerun.cli.bench_options import ALL, at_least, split, whole_numbers
from forerun.errors import InvalidOption, unknown_name

PARTS: Final = ("together", "load", "offline", "sharing")


@dataclass(frozen=True)
class SeriesOptions:
    repeats: int
    parts: str
    together: int
    in_flight: str
    num_prompts: int | None

    @property
    def part_list(self) -> list[str]:
        names = list(PARTS) if self.parts == ALL else split(self.parts)
        for name in names:
            if name not in PARTS:
                raise unknown_name("part of bench batch", name, PARTS)
        return names

    @property
    def in_flight_list(self) -> list[int]:
        return whole_numbers("--in-flight", self.in_flight)


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="startup, batch and parity")


def series_options(
    repeats: Annotated[
        int, _option("--repeats", text="Starts; rounds of together and offline.")
    ] = 5,
    parts: Annotated[
        str, _option("--parts", text=f"Of batch, by comma: {', '.join(PARTS)}; or all.")
    ] = ALL,
    together: Annotated[int, _option("--together", text="Requests of the part together.")] = 8,
    in_flight: Annotated[
        str, _option("--in-flight", text="Requests at once, of the part load.")
    ] = "1,4,16",
    num_prompts: Annotated[
        int | None, _option("--prompts", text="Of the part offline (64) or of parity (40).")
    ] = None,
) -> SeriesOptions:
    at_least("--repeats", repeats, 1)
    at_least("--together", together, 2)
    at_least("--prompts", num_prompts, 1)
    if not split(parts) or not split(in_flight):
        raise InvalidOption("--parts and --in-flight must not be empty; drop the option.")
    return SeriesOptions(repeats, parts, together, in_flight, num_prompts)
