"""One request in flight. Within a step, only `commit` changes it."""

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
    """A prompt and the answer to it so far.

    A prompt with n > 1 has one request for each answer; `choice` is the answer's number.
    """

    id: int
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    choice: int
    end_ids: tuple[int, ...]  # ids that end a text, whether or not `ignore_eos` is set
    max_len: int  # the model's context
    table: BlockTable
    text: OutputText
    options: RequestOptions = field(default_factory=RequestOptions)
    prediction: tuple[int, ...] = ()  # what the caller expects the output to be
    grammar: Grammar | None = None  # which tokens may follow, if not all may

    output: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    text_ends: list[int] = field(default_factory=list)  # length of the text after each token
    logprobs: list[dict[int, float]] = field(default_factory=list)
    prompt_logprobs: list[dict[int, float] | None] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)
    round_idx: int = 0
    num_cached_tokens: int | None = None  # of the prompt, in the cache when it was first admitted
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    error: Exception | None = None  # why it cannot go on
    asker: ref[Any] | None = None  # what reads the answer: a generator, or another iterator
    unread: deque[Round] = field(default_factory=deque)  # for an asker that runs steps itself

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
        """A view of the committed tokens, which grows with the output."""
        return Context(self.prompt, self.output, self.grammar)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_rows(self) -> int:
        return self.table.length

    @cached_property
    def max_num_tokens(self) -> int:
        """The length of the prompt plus `max_tokens`; without `max_tokens`, the whole context."""
        if self.params.max_tokens is None:
            return self.max_len
        return len(self.prompt) + self.params.max_tokens

    @property
    def num_uncomputed(self) -> int:
        """Known tokens that the target has not run: the prompt at first, then the last emitted
        token."""
        return len(self.tokens) - self.table.length

    @property
    def num_left(self) -> int:
        """How many tokens it may still emit."""
        return self.max_num_tokens - len(self.tokens)

    @property
    def is_forsaken(self) -> bool:
        """Whether its answer is no longer read: the asker was garbage collected, or is a generator
        that has ended. The asker need not say so, as ^C may interrupt it while it cleans up."""
        if self.asker is None:
            return False
        asker = self.asker()
        return asker is None or getattr(asker, "gi_frame", asker) is None

    @property
    def is_over(self) -> bool:
        """Whether it has finished or failed."""
        return self.finish_reason is not None or self.error is not None
