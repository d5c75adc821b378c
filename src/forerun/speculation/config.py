"""What a user asks of speculation: vLLM's keys, validated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forerun.errors import InvalidOption
from forerun.option_checks import (
    is_whole,
    require,
    require_fields,
    require_known,
    require_real,
    require_whole,
)
from forerun.speculation.methods import METHODS

_COMBINED: Final = ("hybrid", "merge", "choice")
MAX_NODES: Final = 512  # guesses in one round: far beyond what ever pays
MAX_ORDER: Final = 64  # tokens that a lookup or a table may look back


@dataclass(frozen=True)
class SpeculativeConfig:
    """`num_speculative_tokens` is the depth; a tree has `num_branches` branches of that depth."""

    method: str = "auto"
    model: str | None = None
    num_speculative_tokens: int | None = None  # None: the method's own (16 for suffix, else 5)
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
        require_known("speculative method", METHODS, self.method, *self.methods)
        if self.depth * self.num_branches > MAX_NODES:
            raise InvalidOption(
                f"num_speculative_tokens={self.depth} with num_branches="
                f"{self.num_branches} is over {MAX_NODES} guesses a round; lower one."
            )
        self._check_parts()

    def _check_types(self) -> None:
        for name in ("num_speculative_tokens", "num_layers"):
            require_whole(name, getattr(self, name), 1, or_none=True)
        for name in ("num_branches", "ngram_window", "suffix_min_match", "suffix_max_match"):
            require_whole(name, getattr(self, name), 1)
        require_whole("suffix_max_shared_tokens", self.suffix_max_shared_tokens, 0)
        for name in ("prompt_lookup_min", "prompt_lookup_max"):
            value = getattr(self, name)
            require(_is_order(value), name, value, f"a whole number from 1 to {MAX_ORDER}")
        orders = self.ngram_orders if isinstance(self.ngram_orders, tuple) else ()
        good = bool(orders) and all(map(_is_order, orders))
        require(good, "ngram_orders", self.ngram_orders, f"a list of orders ≥ 1 and ≤ {MAX_ORDER}")
        require_real(
            "suffix_min_chance", self.suffix_min_chance, "a number in [0, 1)", lambda x: 0 <= x < 1
        )
        require(isinstance(self.adaptive, bool), "adaptive", self.adaptive, "true or false")
        require(isinstance(self.model, str | None), "model", self.model, "a name or a path")
        require(isinstance(self.method, str), "method", self.method, "a name")
        good = isinstance(self.methods, tuple) and all(isinstance(m, str) for m in self.methods)
        require(good, "methods", self.methods, "a list of names")

    def _check_parts(self) -> None:
        used = self.methods if self.method in _COMBINED else (self.method,)
        if self.method in _COMBINED and len(used) < 2:
            raise InvalidOption(f'method "{self.method}" combines others; name them in "methods".')
        if self.methods and self.method not in _COMBINED:
            raise InvalidOption(f'"methods" belongs to {" and ".join(_COMBINED)}; drop it.')
        if any(name in (*_COMBINED, "auto") for name in self.methods):
            raise InvalidOption('"methods" cannot hold a combination; name single methods.')
        self._check_needs(used)

    def _check_needs(self, used: tuple[str, ...]) -> None:
        for method in used:
            for option, remedy in METHODS[method].needs.items():
                if getattr(self, option) is None:
                    raise InvalidOption(f'method "{method}" needs "{option}"; give {remedy}.')
        owners = [n for n, m in METHODS.items() if m.takes_model or "model" in m.needs]
        if self.model is not None and not any(method in owners for method in used):
            raise InvalidOption(
                f'"model" is for method "{" or ".join(owners)}", not "{self.method}"; drop it.'
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The single methods that guess, in order."""
        if self.method == "auto":
            return ("suffix",)
        return self.methods or (self.method,)

    @property
    def model_owner(self) -> str | None:
        """The method that `model` is for."""
        if self.model is None:
            return None
        takes = (n for n in self.parts if METHODS[n].takes_model or "model" in METHODS[n].needs)
        return next(takes)

    @property
    def depth(self) -> int:
        """How deep a proposal may be."""
        if self.num_speculative_tokens is not None:
            return self.num_speculative_tokens
        return min(METHODS[name].default_depth for name in self.parts)

    @property
    def num_trees(self) -> int:
        """Trees that one proposal may merge."""
        return len(self.methods) if self.method == "merge" else 1

    @property
    def max_nodes(self) -> int:
        """Guesses in one proposal."""
        return self.depth * self.num_branches * self.num_trees

    @classmethod
    def of(cls, given: SpeculativeConfig | Mapping[str, Any] | None) -> SpeculativeConfig | None:
        """As an option of the engine: itself, keys and values, or None for plain decoding."""
        if given is None or isinstance(given, SpeculativeConfig):
            return given
        rule = 'SpeculativeConfig, a mapping like {"method": "ngram"}, or None'
        require(isinstance(given, Mapping), "speculative_config", given, rule)
        return cls.from_dict(given)

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> SpeculativeConfig:
        """As in vLLM, a `model` alone means method "draft_model"."""
        require_fields("speculative option", cls, options)
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


def _is_order(value: Any) -> bool:
    return is_whole(value) and 1 <= value <= MAX_ORDER


AUTO: Final = SpeculativeConfig()
