"""The drafter protocols, and the view of a request that drafters get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

from forerun.models.llama import LlamaModel
from forerun.models.text.tokenizer import Tokenizer
from forerun.sampling import Context, Noise
from forerun.types import FloatArray, Grammar, Proposal, SamplingParams, Verdict

Memory = TypeVar("Memory")

NOBODY: Final = -1  # the id of requests that only measure time: drafters learn nothing from them


class RequestView(Protocol):
    """A request as drafters see it: committed history, read-only."""

    @property
    def id(self) -> int: ...

    @property
    def prompt(self) -> Sequence[int]: ...

    @property
    def output(self) -> Sequence[int]: ...

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt, then output; the last token is emitted, but the target has not run on it yet."""

    @property
    def params(self) -> SamplingParams: ...

    @property
    def cache_salt(self) -> str | None:
        """Only requests with the same salt may share prefixes and outputs."""

    @property
    def prediction(self) -> Sequence[int]:
        """The output that the caller expects; empty without a prediction."""

    @property
    def grammar(self) -> Grammar | None:
        """The constraint on the output; None if it is unconstrained."""

    @property
    def noise(self) -> Noise: ...

    @property
    def round_idx(self) -> int: ...


def context_of(request: RequestView) -> Context:
    """Return the request's committed tokens as sampling options read them."""
    return Context(request.prompt, request.output, request.grammar)


@dataclass(frozen=True)
class Budget:
    """What a request may spend on guesses this round; depth 0 means no guesses.

    A tree has at most depth · num_branches nodes, by default `num_branches` children of the root,
    each continued as a chain. `first_draw` keeps the draws of drafters that guess for the same
    round apart in the random stream. A guess takes more time than it saves if the chance that it
    and all guesses before it are accepted is below `least_chance`. A drafter may leave out such a
    guess if it was picked, never if it was drawn: that would change q.
    """

    depth: int
    num_branches: int = 1
    first_draw: int = 0
    least_chance: float = 0.0


@dataclass(frozen=True)
class Target:
    """The served model, which drafters guess for."""

    model: LlamaModel
    tokenizer: Tokenizer
    cache_dir: Path | None  # where pulled models are
    heads: tuple[Path, ...] = ()  # the package's heads that were trained for this model
    phrases: Path | None = None  # the package's phrase book of this model


class Drafter(Protocol):
    """Guesses tokens ahead of the target. It changes no state but its own; a proposal is a value.

    begin → (propose → commit)* → end          for each request, in any interleaving
    """

    @property
    def picks(self) -> bool:
        """Whether all guesses are picked, never drawn, and `propose` leaves no state behind. Such a
        drafter may be asked in every round, and its proposal used in part or not at all."""

    @property
    def num_requests(self) -> int:
        """Requests that the drafter has state for; 0 once all have ended."""

    def begin(self, request: RequestView) -> None:
        """Start on a request, again if it was preempted."""

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        """Return one proposal per request, in order; an empty one if there is no guess."""

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        """Take note of `verdict.tokens`, which `request.tokens` ends with.

        `verdict.path` are the accepted nodes of *this* drafter's latest proposal, () if none."""

    def end(self, request: RequestView) -> None:
        """Forget the request, which has finished or was cancelled."""


class OneByOne(ABC, Generic[Memory]):
    """Base class of drafters that guess for each request separately, from its tokens and a memory.

    Subclasses implement `_remember`, which makes a new request's memory, and `_guess`."""

    says_chances = False  # whether every guess comes with a chance

    def __init__(self) -> None:
        self._memories: dict[int, Memory] = {}

    @property
    def num_requests(self) -> int:
        return len(self._memories)

    def begin(self, request: RequestView) -> None:
        self._memories[request.id] = self._remember(request)

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        pairs = zip(requests, budgets, strict=True)
        return [
            self._guess(request, self._memories[request.id], budget) for request, budget in pairs
        ]

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        """Do nothing: `_guess` reads new tokens from the request. `GuardedDrafters` skips it."""

    def end(self, request: RequestView) -> None:
        self._memories.pop(request.id, None)

    @abstractmethod
    def _remember(self, request: RequestView) -> Memory: ...

    @abstractmethod
    def _guess(self, request: RequestView, memory: Memory, budget: Budget) -> Proposal: ...


@runtime_checkable
class HintingDrafter(Drafter, Protocol):
    """A drafter that can tell cheaply that it has no guess; it is then not asked for a proposal."""

    def may_guess(self, request: RequestView, budget: Budget) -> bool:
        """Return False only if `propose` would return no guess; True may turn out wrong."""


@runtime_checkable
class CachedDrafter(Drafter, Protocol):
    """A drafter with a KV cache of its own, in memory beside the target's.

    It admits requests by itself: without room for a request it returns an empty proposal.
    """

    @property
    def max_len(self) -> int:
        """The longest text that the drafter can continue."""

    @property
    def row_bytes(self) -> int:
        """Bytes that one token takes in the drafter's cache."""

    def num_pages_in_use(self) -> int:
        """Return the pages in use in the drafter's cache; 0 once all requests have ended."""

    def allocate(self, num_pages: int, page_size: int) -> None:
        """Make the cache, before the first request."""

    def has_room_for(self, request: RequestView) -> bool:
        """Return whether the cache has room to guess for the request."""

    def is_waiting(self, request: RequestView) -> bool:
        """Return whether the last proposal was empty for want of room, or because the text is not
        read to its end yet. Such a proposal says nothing about the drafter's guesses."""

    def evict(self, request: RequestView) -> None:
        """Give up the rows of a preempted request; they are fed again when needed."""


@runtime_checkable
class TappedDrafter(Drafter, Protocol):
    """A drafter that reads the target's hidden states.

    It gets the hidden states of every committed token that the target runs for a request. Tokens
    found in the target's prefix cache do not run, so theirs never come, and guesses may be worse
    there. After a preemption the same positions come again.
    """

    @property
    def layers(self) -> tuple[int, ...]:
        """The tapped layers, numbered as in `models.llama.Taps`."""

    def num_behind(self, request: RequestView) -> int:
        """Return how many hidden states the next `propose` has to read first. If they are many, the
        time of that call says nothing about the cost of guesses."""

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:
        """Take the hidden states at positions `start` … `start` + n - 1: `rows` [n, E] by layer.

        Their tokens are committed. `commit` follows if the pass emitted tokens."""
