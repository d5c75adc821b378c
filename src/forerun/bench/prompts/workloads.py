"""Workload classes: typical tasks, by how much of the answer is in the prompt already."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any, Final

from forerun.bench.prompts import functions, tasks
from forerun.errors import InvalidOption
from forerun.grammars import Grammars
from forerun.models.text.tokenizer import Tokenizer
from forerun.option_checks import require_known
from forerun.tools import Tool, Toolbox


class Kind(StrEnum):
    COPY = "copy-heavy"
    FREE = "free"
    TRANSLATION = "translation"
    SUMMARY = "summarisation"
    LONG = "long context"
    STRUCTURED = "structured"  # answers match a schema


@dataclass(frozen=True)
class BenchPrompt:
    name: str
    text: str
    is_chat: bool = True  # a user's message; otherwise a text to continue
    num_tokens: int | None = None  # cut to exactly this many
    json_schema: str | None = None  # that the answer must match
    # One of them must be called; `json_schema` is then a call's, for contenders without tools.
    tools: Sequence[Mapping[str, Any]] = ()

    def encode(self, tokenizer: Tokenizer) -> list[int]:
        """Encode with the chat template if the prompt is a message and the model has a template."""
        if self.is_chat and tokenizer.has_chat_template:
            toolbox = Toolbox(tokenizer, Grammars(tokenizer), None)
            asked = [{"role": "user", "content": self.text}]
            shown = [Tool.of(tool) for tool in self.tools]
            messages, variables = toolbox.told(asked, shown, {})
            return tokenizer.encode_chat(messages, **variables)[: self.num_tokens]
        return tokenizer.encode(self.text)[: self.num_tokens]


@dataclass(frozen=True)
class Workload:
    name: str
    kind: Kind
    prompts: tuple[BenchPrompt, ...]

    @property
    def digest(self) -> str:
        """A hash of all prompts: records with equal digests measured the same."""
        joined = "\x00".join(prompt.text for prompt in self.prompts)
        if self.prompts[0].num_tokens is not None:
            joined += f"\x00{self.prompts[0].num_tokens}"
        joined += "".join(f"\x00{p.json_schema}" for p in self.prompts if p.json_schema)
        joined += "".join(f"\x00{json.dumps(p.tools)}" for p in self.prompts if p.tools)
        return hashlib.sha256(joined.encode()).hexdigest()[:16]


_CHAT: Final = ("writing", "roleplay", "reasoning", "stem", "humanities", "qa", "coding")
_TASKS: Final[Mapping[str, tuple[Kind, Callable[[Random], Iterator[tasks.Task]]]]] = {
    "edit-code": (Kind.COPY, tasks.edit_code),
    "repeat": (Kind.COPY, tasks.repeat_with_change),
    "extract": (Kind.COPY, tasks.extract),
    "chat": (Kind.FREE, tasks.from_categories(*_CHAT)),
    "story": (Kind.FREE, tasks.story),
    "maths": (Kind.FREE, tasks.from_categories("gsm8k", "math", "math_reasoning")),
    "translation": (Kind.TRANSLATION, tasks.from_categories("translation")),
    "summarisation": (Kind.SUMMARY, tasks.summary),
    "long": (Kind.LONG, tasks.long_context),
    "json": (Kind.STRUCTURED, tasks.record),
    "tools": (Kind.STRUCTURED, functions.wishes),
}
WORKLOADS: Final = tuple(_TASKS)
KINDS: Final[Mapping[str, Kind]] = {name: kind for name, (kind, _) in _TASKS.items()}
FREE_FORM: Final = tuple(n for n, (kind, _) in _TASKS.items() if kind is not Kind.STRUCTURED)
_PLAIN_TEXT: Final = {"story"}
_SCHEMAS: Final = {"json": tasks.RECORD_SCHEMA, "tools": functions.CALL_SCHEMA}


def build_workloads(names: Sequence[str], num_prompts: int, seed: int) -> list[Workload]:
    """Build `num_prompts` prompts of each class; a class's prompts depend only on the seed."""
    if num_prompts < 1:
        raise InvalidOption(f"{num_prompts} prompts per class is not allowed; give at least 1.")
    require_known("workload class", WORKLOADS, *names)
    return [_build(name, num_prompts, seed) for name in dict.fromkeys(names)]


def cut_prompts(
    workloads: Sequence[Workload], num_tokens: int, tokenizer: Tokenizer
) -> list[Workload]:
    """Cut every prompt to exactly `num_tokens`, to measure the time to first token of a length."""
    for workload in workloads:
        shortest = min(len(prompt.encode(tokenizer)) for prompt in workload.prompts)
        if shortest < num_tokens:
            raise InvalidOption(
                f"class {workload.name} has a prompt of {shortest} tokens, fewer than the "
                f"{num_tokens} of --prompt-tokens; choose --classes with longer ones."
            )
    return [
        replace(w, prompts=tuple(replace(p, num_tokens=num_tokens) for p in w.prompts))
        for w in workloads
    ]


def _build(name: str, num_prompts: int, seed: int) -> Workload:
    kind, draw = _TASKS[name]
    drawn = itertools.islice(draw(Random(f"{seed}:{name}")), num_prompts)
    is_chat = name not in _PLAIN_TEXT
    schema, tools = _SCHEMAS.get(name), functions.FUNCTIONS if name == "tools" else ()
    prompts = (
        BenchPrompt(task, text, is_chat, json_schema=schema, tools=tools) for task, text in drawn
    )
    return Workload(name, kind, tuple(prompts))
