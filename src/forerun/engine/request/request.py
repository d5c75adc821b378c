"""One request in flight. Only `commit` changes it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import ref

from forerun.cache import BlockTable
from forerun.drafters import GRAMMAR, PREDICTION
from forerun.engine.request.options import RequestOptions
from forerun.engine.request.output_text import OutputText
from forerun.engine.request.stats import Stats
from forerun.sampling import Context, Noise
from forerun.speculation.request import RequestSpeculation
from forerun.types import Grammar, Origin, SamplingParams

if TYPE_CHECKING:
    from forerun.engine.step import Round


@dataclass
class Request:
    """A prompt on its way to an answer; `choice` counts the answers to one prompt (n > 1)."""

    id: int
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    choice: int
    end_ids: tuple[int, ...]  # ids that end a text, before `ignore_eos`
    max_len: int  # the model's context
    table: BlockTable
    text: OutputText
    options: RequestOptions = field(default_factory=RequestOptions)
    prediction: tuple[int, ...] = ()  # what the caller expects the output to be
    grammar: Grammar | None = None  # what the output must look like

    output: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    text_ends: list[int] = field(default_factory=list)  # the text's length after each token
    logprobs: list[dict[int, float]] = field(default_factory=list)
    prompt_logprobs: list[dict[int, float] | None] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)
    round_idx: int = 0
    num_cached_tokens: int | None = None  # of the prompt, found in the cache when first admitted
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    error: Exception | None = None  # why it cannot go on
    asker: ref[Any] | None = None  # who reads the answer: a generator, or another iterator
    unread: deque[Round] = field(default_factory=deque)  # by an asker that runs steps itself

    def __post_init__(self) -> None:
        self.tokens: list[int] = list(self.prompt)
        self.noise = Noise(self.seed, self.choice)
        brought = {PREDICTION: self.prediction, GRAMMAR: self.grammar}
        silent = [name for name, given in brought.items() if not given]
        self.speculation: RequestSpeculation = self.options.speculation.without(*silent)

    @property
    def priority(self) -> int:
        return self.options.priority

    @property
    def cache_salt(self) -> str | None:
        return self.options.cache_salt

    @cached_property
    def context(self) -> Context:
        """It grows with the output."""
        return Context(self.prompt, self.output, self.grammar)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_rows(self) -> int:
        return self.table.length

    @cached_property
    def max_num_tokens(self) -> int:
        """Prompt plus `max_tokens`; without a number, all of the context."""
        if self.params.max_tokens is None:
            return self.max_len
        return len(self.prompt) + self.params.max_tokens

    @property
    def num_uncomputed(self) -> int:
        """Tokens that the target has not run: the prompt at first, then the last emitted."""
        return len(self.tokens) - self.table.length

    @property
    def num_left(self) -> int:
        """Tokens it may still emit."""
        return self.max_num_tokens - len(self.tokens)

    @property
    def is_forsaken(self) -> bool:
        """Nobody reads on: who asked is gone, or a generator that came to its end. Both are seen
        from here, so an asker that was interrupted while it cleaned up has left all the same."""
        if self.asker is None:
            return False
        asker = self.asker()
        return asker is None or getattr(asker, "gi_frame", asker) is None

    @property
    def is_over(self) -> bool:
        """Finished or failed."""
        return self.finish_reason is not None or self.error is not None
