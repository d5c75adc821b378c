"""The formats in which families of models write calls."""

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

# Models are trained on JSON spaced as Python's `json.dumps` does; no other white space is allowed.
_SPACING: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Layout(NamedTuple):
    """A spelling of a call as JSON: how it begins, and the text after its arguments."""

    way: Way
    behind: str


# Where JSON without marks counts as a call, and its spellings: in a code block or in a paragraph of
# its own; on one line or indented.
_BLOCKS: Final = (("\n```json\n", "\n```"), ("\n```\n", "\n```"), (LEAD, ""))
_LAYOUTS: Final = (
    Layout(Way('{"name": "', '", "arguments": '), "}"),
    Layout(Way('{\n  "name": "', '",\n  "arguments": '), "\n}"),
    Layout(Way('{\n    "name": "', '",\n    "arguments": '), "\n}"),
)


@dataclass(frozen=True)
class CallFormat:
    """How a family of models writes calls.

    A call is `before`, {"name": …, `key`: {…}}, `after`. All calls of an answer stand between
    `opens` and `closes`, separated by `between` (None: there is only one call). Calls begin with
    `trigger`; if it is None, with an object whose `name` is that of a function.

    Models that have not quite learnt this format write a call in one of `layouts` within one of
    `blocks`, pairs of opening and closing text. Such a call is the only one of its answer.
    """

    name: str
    key: str = "arguments"
    trigger: str | None = None
    opens: str = ""
    before: str = ""
    after: str = ""
    between: str | None = None
    closes: str = ""
    is_special: bool = False  # it has special tokens, which text normally omits
    id_len: int | None = None  # characters of a call's id, if the template prescribes them
    blocks: tuple[tuple[str, str], ...] = ()
    layouts: tuple[Layout, ...] = ()

    @classmethod
    def of(cls, tokenizer: Tokenizer, wanted: str | None) -> CallFormat:
        """Return the format named `wanted`, or else the one that the chat template shows; Hermes'
        if the template has no tools, since a message then describes them."""
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
        # Mistral's models differ in this space; the template shows this model's form.
        if found is MISTRAL and "[TOOL_CALLS] [" in source:
            found = replace(MISTRAL, opens="[TOOL_CALLS] [")
        written = found.written([("", "")])
        marks = map(tokenizer.token, tokenizer.special_ids)
        return replace(found, is_special=any(mark in written for mark in marks if mark))

    def header(self, name: str) -> str:
        """Return the text before a call's arguments."""
        return self.next_way.of(name)

    def written(self, calls: Iterable[tuple[str, str]]) -> str:
        """Return `calls`, pairs of name and arguments, as the model writes them."""
        each = [f"{self.header(name)}{arguments}}}{self.after}" for name, arguments in calls]
        return self.opens + (self.between or "").join(each) + self.closes

    def triggers(self, tools: Sequence[Tool]) -> tuple[str, ...]:
        """Return the texts that mark the beginning of a call in an answer."""
        if self.trigger is None:
            return tuple(f'{{"name": "{tool.name}"' for tool in tools)
        # Up to the arguments' key, since any JSON may have a `name`; without the last space, which
        # is often part of the next token.
        others = (way.of(tool.name).rstrip() for way in self._other_ways for tool in tools)
        return (self.trigger, *others)

    @property
    def first_ways(self) -> tuple[Way, ...]:
        """The ways to begin the first call of an answer."""
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
        """The way to begin any further call."""
        return Way(f'{self.before}{{"name": "', f'", "{self.key}": ')

    def rules(self, schemas: Mapping[str, Any], *, repeats: bool) -> str:
        """Return Lark's rules for `calls`; `schemas` are the arguments', by function name."""
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
        """Yield the rules of calls within `blocks`, with free white space in their arguments."""
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
# By vLLM's names for their parsers.
FORMATS: Final = {each.name: each for each in (HERMES, LLAMA, MISTRAL)}


def _shown_in(template: str) -> CallFormat | None:
    if "<tool_call>" in template:
        return None if "<function=" in template else HERMES
    if "[TOOL_CALLS]" in template:
        return None if "[ARGS]" in template else MISTRAL
    is_llama = '"parameters"' in template and '"name"' in template
    return LLAMA if is_llama else None
