"""A sentence beside a table, folded between its words but never inside an interval or a token."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions
from rich.text import Text

_WHOLE: Final = re.compile(r"\S+ \[[^\[\] ]+, [^\[\] ]+\]|' \S*'")  # 1.37 [1.28, 1.46], ' word'
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Note:
    """`mark` stands before the first line; the others begin below the text."""

    text: str
    mark: str = ""
    mark_style: str = ""
    style: str = ""

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines = self.lines(options.max_width)
        yield Text.assemble((self.mark, self.mark_style), (lines[0], self.style))
        for line in lines[1:]:
            yield Text(" " * len(self.mark) + line, self.style)

    def lines(self, width: int) -> list[str]:
        whole = _WHOLE.sub(lambda found: found[0].replace(" ", _NO_BREAK), self.text)
        folded = textwrap.wrap(
            whole, max(width - len(self.mark), 1), break_long_words=False, break_on_hyphens=False
        )
        return [line.replace(_NO_BREAK, " ") for line in folded] or [""]
