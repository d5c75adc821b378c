"""What a drafter is, and what it may look at."""

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

NOBODY: Final = -1  # the id of texts that are run for their time: they are nothing to learn from


class RequestView(Protocol):
    """A request as drafters see it: committed history, and nothing that they could change."""

    @property
    def id(self) -> int: ...

    @property
    def prompt(self) -> Sequence[int]: ...

    @property
    def output(self) -> Sequence[int]: ...

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt, then output; the last one is emitted but not yet scored by the target."""

    @property
    def params(self) -> SamplingParams: ...

    @property
    def cache_salt(self) -> str | None:
        """Whose request it is: only requests with the same key may share what they wrote."""

    @property
    def prediction(self) -> Sequence[int]:
        """What the caller expects the output to be; empty if nothing."""

    @property
    def grammar(self) -> Grammar | None:
        """What the output must look like, if not everything will do."""

    @property
    def noise(self) -> Noise: ...

    @property
    def round_idx(self) -> int: ...


def context_of(request: RequestView) -> Context:
    """Its committed tokens, as options read them."""
    return Context(request.prompt, request.output, request.grammar)


@dataclass(frozen=True)
class Budget:
    """What a request may spend on guesses this round; depth 0 is an answer.

    A tree has up to `num_branches` children at the root, each continued as a chain, or as many
    nodes in another shape: at most depth · num_branches. `first_draw` keeps the draws of drafters
    that guess for the same round apart in the random stream. A guess whose chance, with all before
    it, is below `least_chance` takes more time than it brings: a drafter that knows may leave it
    out, if it is picked. One that was drawn is never left out for what it is.
    """

    depth: int
    num_branches: int = 1
    first_draw: int = 0
    least_chance: float = 0.0


@dataclass(frozen=True)
class Target:
    """The model that is served, and that drafters guess for."""

    model: LlamaModel
    tokenizer: Tokenizer
    cache_dir: Path | None  # where pulled models are
    heads: tuple[Path, ...] = ()  # those of the package that were trained for it
    phrases: Path | None = None  # the package's book of what it says


class Drafter(Protocol):
    """Guesses ahead. It owns its state, and a proposal is a value: nobody else's is touched.

    begin → (propose → commit)* → end          for each request, in any interleaving
    """

    @property
    def picks(self) -> bool:
        """Whether guesses are picked, never drawn, and nothing is kept of a proposal: then it may
        be asked in every round, and its answer be used in part or not at all."""

    @property
    def num_requests(self) -> int:
        """Requests that it remembers something of; 0 once all have ended."""

    def begin(self, request: RequestView) -> None:
        """A prompt arrived."""

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        """One proposal per request, in order; an empty one where there is nothing to say."""

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        """`verdict.tokens` are now part of `request.tokens`; `verdict.path` are nodes of the
        latest proposal of *this* drafter, or () if it made none."""

    def end(self, request: RequestView) -> None:
        """The request is gone, finished or not; forget it."""


class OneByOne(ABC, Generic[Memory]):
    """Most of a drafter that guesses for each request by itself, from what it remembers of it and
    from the request's own tokens: `_remember` and `_guess` are all that is left to write."""

    says_chances = False  # of all its guesses

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
        """Nothing to do, so nobody calls it: `_guess` reads the new tokens from the request."""

    def end(self, request: RequestView) -> None:
        self._memories.pop(request.id, None)

    @abstractmethod
    def _remember(self, request: RequestView) -> Memory: ...

    @abstractmethod
    def _guess(self, request: RequestView, memory: Memory, budget: Budget) -> Proposal: ...


@runtime_checkable
class HintingDrafter(Drafter, Protocol):
    """A drafter that sees at a glance where it has nothing to say: then it is not asked."""

    def may_guess(self, request: RequestView, budget: Budget) -> bool:
        """False only where `propose` would have no guess, as far as a glance can tell."""


@runtime_checkable
class CachedDrafter(Drafter, Protocol):
    """A drafter with a cache of its own, which takes its memory beside the target's.

    It lets requests in by itself: where there is no room, it has nothing to say.
    """

    @property
    def max_len(self) -> int:
        """The longest text that it can continue."""

    @property
    def row_bytes(self) -> int:
        """What a token takes in its cache."""

    def num_pages_in_use(self) -> int:
        """Of its cache; 0 once all requests have ended."""

    def allocate(self, num_pages: int, page_size: int) -> None:
        """Make the cache, before the first request."""

    def has_room_for(self, request: RequestView) -> bool:
        """Whether it could guess for it now."""

    def is_waiting(self, request: RequestView) -> bool:
        """Whether it was asked and had no room, or has not yet read all of the text: then its
        silence says nothing about its guesses."""

    def evict(self, request: RequestView) -> None:
        """The request was preempted: give up its rows, they are fed again when they are needed."""


@runtime_checkable
class TappedDrafter(Drafter, Protocol):
    """A drafter that looks at the target's hidden states.

    It hears of every row that the target computes for a request, from the first that was not in
    the target's cache: what others computed before is never handed out, so guesses may be worse
    there, and a row may come again after a preemption.
    """

    @property
    def layers(self) -> tuple[int, ...]:
        """After how many of the target's layers it taps: `models.llama.Taps`."""

    def num_behind(self, request: RequestView) -> int:
        """Hidden states that its next answer reads first: where they are many, how long that takes
        says nothing about its guesses."""

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:
        """`rows` [n, E] by layer are the hidden states at positions `start` … `start` + n - 1,
        whose tokens are committed; `commit` follows if any were emitted."""
