"""What a user asks of speculation: vLLM's keys, validated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from forerun.errors import InvalidOption, unknown_name

# Each method and what it is; "ngram" is vLLM's name for prompt lookup.
METHODS: Final[Mapping[str, str]] = {
    "auto": "suffix: the best of what needs no extra weights",
    "suffix": "copies on from the longest stretch of text that stood here before",
    "draft_model": "a smaller model of the same tokenizer (`model`)",
    "own_layers": "the target's own first `num_layers` layers",
    "prompt_lookup": "copies what followed the same words before",
    "ngram": "vLLM's name for prompt_lookup",
    "ngram_tables": "counts of what followed short contexts in this text",
    "unigram": "counts of single tokens in this text",
    "bigram": "counts of token pairs in this text",
    "random": "random tokens: a lower bound",
    "hybrid": "the one of `methods` that pays; if not adaptive, the first that has a guess",
    "merge": "the guesses of all `methods` in one tree",
    "choice": "the one of `methods` that a request names; else the one that pays, or the first",
}
_COMBINED: Final = ("hybrid", "merge", "choice")
MAX_NODES: Final = 512  # guesses in one round: far beyond what ever pays
MAX_ORDER: Final = 64  # tokens that a lookup or a table may look back


@dataclass(frozen=True)
class SpeculativeConfig:
    """`num_speculative_tokens` is the depth; a tree has `num_branches` branches of that depth."""

    method: str = "auto"
    model: str | None = None
    num_speculative_tokens: int | None = None  # 16 where guesses stop by themselves, else 5
    num_branches: int = 1
    adaptive: bool = True  # the depth is a ceiling; False: it is what is spent
    num_layers: int | None = None
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 5
    ngram_orders: tuple[int, ...] = (2, 3, 4)
    ngram_window: int = 1 << 17
    suffix_min_match: int = 1
    suffix_max_match: int = 32
    suffix_min_chance: float = 0.25
    suffix_max_shared_tokens: int = 1 << 16
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check_types()
        for name in (self.method, *self.methods):
            if name not in METHODS:
                raise unknown_name("speculative method", name, METHODS)
        if self.depth * self.num_branches > MAX_NODES:
            raise InvalidOption(
                f"num_speculative_tokens={self.depth} with num_branches="
                f"{self.num_branches} is over {MAX_NODES} guesses a round; lower one."
            )
        self._check_parts()

    def _check_types(self) -> None:
        if self.num_speculative_tokens is not None:
            good = _is_count(self.num_speculative_tokens)
            _require(good, self, "num_speculative_tokens", "a whole number ≥ 1")
        for name in ("num_branches", "ngram_window", "suffix_min_match", "suffix_max_match"):
            _require(_is_count(getattr(self, name)), self, name, "a whole number ≥ 1")
        for name in ("prompt_lookup_min", "prompt_lookup_max"):
            good = _is_count(getattr(self, name)) and getattr(self, name) <= MAX_ORDER
            _require(good, self, name, f"a whole number from 1 to {MAX_ORDER}")
        _require(isinstance(self.adaptive, bool), self, "adaptive", "true or false")
        if self.num_layers is not None:
            _require(_is_count(self.num_layers), self, "num_layers", "a whole number ≥ 1")
        if self.model is not None:
            _require(isinstance(self.model, str), self, "model", "a name or a path")
        _require(isinstance(self.method, str), self, "method", "a name")
        good = all(isinstance(name, str) for name in _listed(self.methods))
        _require(good and isinstance(self.methods, tuple), self, "methods", "a list of names")
        chance = self.suffix_min_chance
        good = isinstance(chance, int | float) and 0 <= chance < 1
        _require(good, self, "suffix_min_chance", "a number in [0, 1)")
        good = self.suffix_max_shared_tokens == 0 or _is_count(self.suffix_max_shared_tokens)
        _require(good, self, "suffix_max_shared_tokens", "a whole number ≥ 0; 0 shares nothing")
        orders = _listed(self.ngram_orders)
        good = bool(orders) and all(_is_count(n) and n <= MAX_ORDER for n in orders)
        _require(good, self, "ngram_orders", f"a list of orders ≥ 1 and ≤ {MAX_ORDER}")

    def _check_parts(self) -> None:
        used = self.methods if self.method in _COMBINED else (self.method,)
        if self.method in _COMBINED and len(used) < 2:
            raise InvalidOption(f'method "{self.method}" combines others; name them in "methods".')
        if self.methods and self.method not in _COMBINED:
            raise InvalidOption(f'"methods" belongs to {" and ".join(_COMBINED)}; drop it.')
        if any(name in (*_COMBINED, "auto") for name in self.methods):
            raise InvalidOption('"methods" cannot hold a combination; name single methods.')
        if "draft_model" in used and self.model is None:
            raise InvalidOption('method "draft_model" needs "model", or --draft-model.')
        if self.model is not None and "draft_model" not in used:
            raise InvalidOption(
                f'"model" is for method "draft_model", not "{self.method}"; drop it.'
            )
        if "own_layers" in used and self.num_layers is None:
            raise InvalidOption('method "own_layers" needs "num_layers", or --num-layers.')

    @property
    def parts(self) -> tuple[str, ...]:
        """The single methods that guess, in order."""
        if self.method == "auto":
            return ("suffix",)
        return self.methods or (self.method,)

    @property
    def depth(self) -> int:
        """How deep a proposal may be."""
        if self.num_speculative_tokens is not None:
            return self.num_speculative_tokens
        return 16 if self.parts == ("suffix",) else 5

    @property
    def num_trees(self) -> int:
        """Trees that one proposal may merge."""
        return len(self.methods) if self.method == "merge" else 1

    @property
    def max_nodes(self) -> int:
        """Guesses in one proposal."""
        return self.depth * self.num_branches * self.num_trees

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> SpeculativeConfig:
        """As in vLLM, a `model` alone means method "draft_model"."""
        valid = {f.name for f in fields(cls)}
        for name in options:
            if name not in valid:
                raise unknown_name("speculative option", name, valid)
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in options.items()
        }
        if given.get("model") is not None:
            given.setdefault("method", "draft_model")
        return cls(**given)

    @classmethod
    def from_json(cls, text: str) -> SpeculativeConfig:
        try:
            options = json.loads(text)
        except (ValueError, RecursionError) as error:  # also for numbers of too many digits
            raise InvalidOption(
                f'--speculative-config is not JSON ({error}); write it like {{"method": "auto"}}.'
            ) from None
        if not isinstance(options, dict):
            raise InvalidOption('--speculative-config must be an object, like {"method": "auto"}.')
        return cls.from_dict(options)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _listed(value: object) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _require(good: bool, config: SpeculativeConfig, name: str, rule: str) -> None:
    if not good:
        raise InvalidOption(f"{name}={getattr(config, name)!r} is not allowed; give {rule}.")


AUTO: Final = SpeculativeConfig()
