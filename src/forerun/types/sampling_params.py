"""The options by which one request's tokens are chosen, validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import numpy as np

from forerun.errors import InvalidOption, unknown_name
from forerun.option_checks import (
    is_finite,
    is_unicode,
    is_whole,
    known_keywords,
    require,
    require_fields,
    require_real,
    require_whole,
)
from forerun.option_fields import option
from forerun.types.arrays import IntArray
from forerun.types.structured_outputs import StructuredOutputsParams

_REALS: Final = (
    *("temperature", "top_p", "min_p", "lenience"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
_WHOLES: Final = (
    *("n", "seed", "top_k", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs"),
)
_BOOLEANS: Final = ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens")
MAX_N: Final = 128  # answers per prompt, as in OpenAI's API


class Acceptance(StrEnum):
    """How guesses are judged. The first two are exact; the last is lossy and says so."""

    COUPLED = "coupled"
    REJECTION = "rejection"
    LENIENT = "lenient"


@known_keywords
@dataclass(frozen=True)
class SamplingParams:
    """How one request's tokens are chosen; names and defaults as in vLLM.

    `temperature=0` is argmax. `top_k=0` and `-1` keep every token. With `seed=None` the engine
    draws a seed below 2^53 and returns it. `lenience` is only for `acceptance="lenient"`.
    """

    n: int = option(1, "Number of answers per prompt.", "-n", "--n")
    temperature: float = 1.0
    top_k: int = option(0, "Sample from the k likeliest tokens; 0 keeps all.")
    top_p: float = option(1.0, "Sample from the likeliest tokens up to this probability mass.")
    min_p: float = option(0.0, "Drop tokens below this share of the likeliest token's probability.")
    repetition_penalty: float = option(1.0, "Values above 1 discourage repetition.")
    presence_penalty: float = option(0.0, "Subtracted once from the logits of generated tokens.")
    frequency_penalty: float = option(
        0.0, "Subtracted from a token's logit each time it is generated."
    )
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = option(
        None, "Allow only this token id; repeatable.", "--allowed-token-id"
    )
    seed: int | None = option(
        None, "Random seed; with coupled acceptance it reproduces the text. Default: drawn."
    )
    max_tokens: int | None = 16
    min_tokens: int = option(0, "Minimum tokens before the answer may end.")
    stop: tuple[str, ...] = option((), "Stop before this text; repeatable.")
    stop_token_ids: tuple[int, ...] = option(
        (), "Stop at this token id; repeatable.", "--stop-token-id"
    )
    ignore_eos: bool = option(False, "Continue after the end-of-sequence token.")
    include_stop_str_in_output: bool = option(
        False, "Keep the stop text in the answer.", "--include-stop"
    )
    skip_special_tokens: bool = True
    logprobs: int | None = option(None, "With --json: log-probabilities of the k likeliest tokens.")
    prompt_logprobs: int | None = None
    structured_outputs: StructuredOutputsParams | None = None
    acceptance: Acceptance = Acceptance.COUPLED
    lenience: float = option(1.0, "For lenient acceptance: no token above p/l; 1 is exact.")

    def __post_init__(self) -> None:
        self._normalise()
        self._check_law()
        self._check_lengths()
        self._check_acceptance()
        self._widen()

    @property
    def is_unshared(self) -> bool:
        """Whether it needs all of the prompt's logits, so that it can share no cached prefix."""
        return self.prompt_logprobs is not None

    def _widen(self) -> None:
        """Turn numpy's numbers into Python's, as narrow ones would narrow results of arithmetic."""
        for name in _REALS:
            object.__setattr__(self, name, float(getattr(self, name)))
        for name in _WHOLES:
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else int(value))

    def _normalise(self) -> None:
        """Accept usual forms: one stop string, lists, JSON's string keys, `top_k=-1`."""
        put = object.__setattr__  # a frozen value is completed
        stop: Any = self.stop
        try:
            put(self, "stop", (stop,) if isinstance(stop, str) else _listed(stop or ()))
            put(self, "stop_token_ids", _listed(self.stop_token_ids or ()))
            bias = {_token_id(t): float(b) for t, b in (self.logit_bias or {}).items()}
            put(self, "logit_bias", bias)
            if self.allowed_token_ids is not None:
                put(self, "allowed_token_ids", _listed(self.allowed_token_ids))
        except (TypeError, ValueError, AttributeError, OverflowError):
            raise InvalidOption(
                "stop, stop_token_ids and allowed_token_ids are lists, and logit_bias maps token "
                "ids to numbers; one of them is not."
            ) from None
        for name in _BOOLEANS:
            value = getattr(self, name)
            require(isinstance(value, bool | np.bool_), name, value, "true or false")
            put(self, name, bool(value))
        if self.top_k == -1:
            put(self, "top_k", 0)
        put(self, "structured_outputs", StructuredOutputsParams.of(self.structured_outputs))
        try:
            put(self, "acceptance", Acceptance(self.acceptance))
        except ValueError:
            raise unknown_name("acceptance", str(self.acceptance), list(Acceptance)) from None

    def _check_law(self) -> None:
        require_real("temperature", self.temperature, "≥ 0", lambda x: x >= 0)
        good = is_whole(self.top_k) and self.top_k >= 0
        require(good, "top_k", self.top_k, "a whole number ≥ 0, or -1")
        require_real("top_p", self.top_p, "in (0, 1]", lambda x: 0 < x <= 1)
        require_real("min_p", self.min_p, "in [0, 1]", lambda x: 0 <= x <= 1)
        require_real("repetition_penalty", self.repetition_penalty, "> 0", lambda x: x > 0)
        for name in ("presence_penalty", "frequency_penalty"):
            require_real(name, getattr(self, name), "a finite number", lambda _: True)
        if not all(token >= 0 and is_finite(bias) for token, bias in self.logit_bias.items()):
            raise InvalidOption("logit_bias must map token ids ≥ 0 to finite numbers.")
        allowed = self.allowed_token_ids
        good = not allowed or all(is_whole(token) and token >= 0 for token in allowed)
        if allowed is not None and not (allowed and good):
            raise InvalidOption("allowed_token_ids must hold at least one id, each ≥ 0.")

    def _check_lengths(self) -> None:
        good = is_whole(self.n) and 1 <= self.n <= MAX_N
        require(good, "n", self.n, f"a whole number from 1 to {MAX_N}")
        if not all(is_whole(token) and token >= 0 for token in self.stop_token_ids):
            raise InvalidOption("stop_token_ids must be token ids ≥ 0.")
        require_whole("max_tokens", self.max_tokens, least=1, or_none=True)
        require_whole("min_tokens", self.min_tokens, least=0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidOption(
                f"min_tokens={self.min_tokens} is above max_tokens={self.max_tokens}; lower it."
            )
        if not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidOption("stop must be a non-empty string or a list of them.")
        if not all(map(is_unicode, self.stop)):
            raise InvalidOption("stop holds a lone surrogate, which no text has; give valid text.")
        for name in ("logprobs", "prompt_logprobs"):
            require_whole(name, getattr(self, name), least=0, or_none=True)
        if self.seed is not None:
            good = is_whole(self.seed) and -(2**63) <= self.seed < 2**64
            require(good, "seed", self.seed, "a whole number of at most 64 bits")

    def _check_acceptance(self) -> None:
        require_real("lenience", self.lenience, "in (0, 1]", lambda x: 0 < x <= 1)
        if self.lenience != 1 and self.acceptance is not Acceptance.LENIENT:
            raise InvalidOption('lenience is lossy; ask for it by name: acceptance="lenient".')

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> SamplingParams:
        """Build from a caller's mapping; an unknown name raises and suggests the nearest one."""
        require_fields("sampling option", cls, options)
        return cls(**options)

    def with_(self, **changes: Any) -> SamplingParams:
        return replace(self, **changes)

    @cached_property
    def changes_logits(self) -> bool:
        """Whether bias, masks or penalties change logits. Grammars and, for the first tokens,
        `min_tokens` do so as well, which does not count here."""
        return self.moves_logits or self.allowed_token_ids is not None

    @property
    def moves_logits(self) -> bool:
        """Whether bias or penalties change logits other than by masking tokens out."""
        penalties = (self.repetition_penalty - 1, self.presence_penalty, self.frequency_penalty)
        return bool(self.logit_bias) or any(penalties)

    @property
    def shows_laws(self) -> bool:
        """Whether log-probabilities are returned, for which the logits are needed."""
        return self.logprobs is not None or self.prompt_logprobs is not None

    @cached_property
    def truncates(self) -> bool:
        """Whether top-k, top-p or min-p may leave tokens out."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @cached_property
    def allowed_array(self) -> IntArray:
        """`allowed_token_ids` as an array, since it may be most of a vocabulary."""
        return np.array(self.allowed_token_ids or (), np.int64)

    @cached_property
    def allowed_bits(self) -> bytes | None:
        """A bit for each token up to the largest of `allowed_token_ids`, the lowest first."""
        if self.allowed_token_ids is None:
            return None
        found = np.zeros(int(self.allowed_array.max()) + 1, bool)
        found[self.allowed_array] = True
        return np.packbits(found, bitorder="little").tobytes()

    @cached_property
    def before_argmax(self) -> SamplingParams:
        """The same bias, masks and penalties, without temperature, top-k, top-p and min-p."""
        return self.with_(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def _listed(given: Any) -> tuple[Any, ...]:
    if isinstance(given, Mapping):
        raise TypeError
    return tuple(given)


def _token_id(given: Any) -> int:
    """Read a token id, which is text as a key in JSON; a fraction is no id."""
    found = int(given)
    if found != float(given):
        raise ValueError
    return found
