"""How families of models write calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from forerun.errors import InvalidOption, unknown_name
from forerun.grammars.cues import LEAD
from forerun.models.text.tokenizer import Tokenizer
from forerun.tools.headers import Way
from forerun.tools.tool import Tool

# As models are trained to write JSON: Python's way, with no other space.
_SPACING: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Layout(NamedTuple):
    """A way to write a call as JSON, and what closes it."""

    way: Way
    behind: str


# JSON alone: in a block of code, or in a paragraph of its own; on one line, or indented.
_BLOCKS: Final = (("\n```json\n", "\n```"), ("\n```\n", "\n```"), (LEAD, ""))
_LAYOUTS: Final = (
    Layout(Way('{"name": "', '", "arguments": '), "}"),
    Layout(Way('{\n  "name": "', '",\n  "arguments": '), "\n}"),
    Layout(Way('{\n    "name": "', '",\n    "arguments": '), "\n}"),
)


@dataclass(frozen=True)
class CallFormat:
    """How a family of models writes calls.

    All calls stand within `opens` and `closes`, each within `before` and `after`, separated by
    `between` (None: there is only one): {"name": …, `key`: {…}}. Calls begin with `trigger`; if it
    is None, with an object that begins with a function's name.

    Models that have not quite learnt this format write calls in one of `layouts` within one of
    `blocks`, pairs of what opens and what closes it. Such a call is the only one of its answer.
    """

    name: str
    key: str = "arguments"
    trigger: str | None = None
    opens: str = ""
    before: str = ""
    after: str = ""
    between: str | None = None
    closes: str = ""
    is_special: bool = False  # some of it is special tokens, which texts leave out
    id_len: int | None = None  # of the ids of calls, where the template asks for it
    blocks: tuple[tuple[str, str], ...] = ()
    layouts: tuple[Layout, ...] = ()

    @classmethod
    def of(cls, tokenizer: Tokenizer, wanted: str | None) -> CallFormat:
        """The one that is `wanted`, or that the chat template shows. Where a template knows no
        tools, they are described as Hermes has them."""
        source = tokenizer.chat_template or ""
        if wanted is not None:
            if wanted not in FORMATS:
                raise unknown_name("tool call parser", wanted, FORMATS)
            found: CallFormat | None = FORMATS[wanted]
        elif not tokenizer.has_chat_template or "tools" not in tokenizer.template_reads:
            found = HERMES
        else:
            found = _shown_in(source)
        if found is None:
            raise InvalidOption(
                "how this model's chat template writes tool calls is not known; give "
                f"tool_call_parser: {', '.join(FORMATS)}."
            )
        # Both are written; a template shows which its model has learnt.
        if found is MISTRAL and "[TOOL_CALLS] [" in source:
            found = replace(MISTRAL, opens="[TOOL_CALLS] [")
        written = found.written([("", "")])
        marks = map(tokenizer.token, tokenizer.special_ids)
        return replace(found, is_special=any(mark in written for mark in marks if mark))

    def header(self, name: str) -> str:
        """What stands before a call's arguments."""
        return self.next_way.of(name)

    def written(self, calls: Iterable[tuple[str, str]]) -> str:
        """Names and arguments as the model writes them."""
        each = [f"{self.header(name)}{arguments}}}{self.after}" for name, arguments in calls]
        return self.opens + (self.between or "").join(each) + self.closes

    def triggers(self, tools: Sequence[Tool]) -> tuple[str, ...]:
        """What an answer has in it where calls begin."""
        if self.trigger is None:
            return tuple(f'{{"name": "{tool.name}"' for tool in tools)
        # A name alone may be that of anything; the space at the end is often the next token's.
        others = (way.of(tool.name).rstrip() for way in self._other_ways for tool in tools)
        return (self.trigger, *others)

    @property
    def first_ways(self) -> tuple[Way, ...]:
        """To begin the first call of an answer."""
        way = self.next_way
        return Way(self.opens + way.before_name, way.before_arguments), *self._other_ways

    @property
    def _other_ways(self) -> list[Way]:
        return [
            Way(opens + way.before_name, way.before_arguments)
            for opens, _ in self.blocks
            for way, _ in self.layouts
        ]

    @property
    def next_way(self) -> Way:
        """To begin any call behind it."""
        return Way(f'{self.before}{{"name": "', f'", "{self.key}": ')

    def rules(self, schemas: Mapping[str, Any], *, repeats: bool) -> str:
        """`calls` in Lark; `schemas` are those of arguments, by the names of functions."""
        more = ""
        if repeats and self.between is not None:
            more = f" ({json.dumps(self.between)} call)*" if self.between else " call*"
        opens = f"{json.dumps(self.opens)} " if self.opens else ""
        closes = f" {json.dumps(self.closes)}" if self.closes else ""
        names = " | ".join(f"call{idx}" for idx in range(len(schemas)))
        start, rest = self.next_way
        blocks = "".join(f" | block{idx}" for idx in range(len(self.blocks)))
        lines = [
            f"calls: {opens}call{more}{closes}{blocks}",
            f"call: {json.dumps(start)} ({names}) {json.dumps('}' + self.after)}",
        ]
        for idx, (name, schema) in enumerate(schemas.items()):
            spaced = json.dumps({**schema, "x-guidance": _SPACING}, ensure_ascii=False)
            lines.append(f"call{idx}: {json.dumps(name + rest)} %json {spaced}")
        if self.blocks:
            lines += self._block_rules(schemas)
        return "\n".join(lines)

    def _block_rules(self, schemas: Mapping[str, Any]) -> Iterator[str]:
        """Of calls within `blocks`; white space in their arguments is free."""
        for idx, (opens, closes) in enumerate(self.blocks):
            end = f" {json.dumps(closes)}" if closes else ""
            yield f"block{idx}: {json.dumps(opens)} layout{end}"
        yield "layout: " + " | ".join(f"layout{idx}" for idx in range(len(self.layouts)))
        for idx, ((start, rest), behind) in enumerate(self.layouts):
            names = " | ".join(f"layout{idx}_{at}" for at in range(len(schemas)))
            yield f"layout{idx}: {json.dumps(start)} ({names}) {json.dumps(behind)}"
            for at, name in enumerate(schemas):
                yield f"layout{idx}_{at}: {json.dumps(name + rest)} values{at}"
        for at, schema in enumerate(schemas.values()):
            yield f"values{at}: %json {json.dumps(schema, ensure_ascii=False)}"


HERMES: Final = CallFormat(
    "hermes",
    trigger="<tool_call>",
    before="<tool_call>\n",
    after="\n</tool_call>",
    between="\n",
    blocks=_BLOCKS,
    layouts=_LAYOUTS,
)
LLAMA: Final = CallFormat("llama3_json", key="parameters")
MISTRAL: Final = CallFormat(
    "mistral", trigger="[TOOL_CALLS]", opens="[TOOL_CALLS][", between=", ", closes="]", id_len=9
)
# By the names that vLLM gives their parsers.
FORMATS: Final = {each.name: each for each in (HERMES, LLAMA, MISTRAL)}


def _shown_in(template: str) -> CallFormat | None:
    if "<tool_call>" in template:
        return None if "<function=" in template else HERMES
    if "[TOOL_CALLS]" in template:
        return None if "[ARGS]" in template else MISTRAL
    is_llama = '"parameters"' in template and '"name"' in template
    return LLAMA if is_llama else None
