"""The user's options for speculation: vLLM's keys, validated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from forerun.drafters import GRAMMAR, PREDICTION
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

_BROUGHT: Final = {PREDICTION: "a prediction", GRAMMAR: "structured_outputs or tools"}
_COMBINED: Final = ("hybrid", "merge", "choice")
MAX_NODES: Final = 512  # guesses in one round: far more than ever pay
MAX_ORDER: Final = 64  # tokens that a lookup or a table may look back


@dataclass(frozen=True)
class SpeculativeConfig:
    """The options of an engine's speculation.

    `num_speculative_tokens` is the depth; a tree has `num_branches` branches of that depth.
    """

    method: str = "auto"
    model: str | None = None
    num_speculative_tokens: int | None = None  # None: the method's own (16 for suffix, else 5)
    num_branches: int = 1
    adaptive: bool = True  # True: the depth is a ceiling; False: every round guesses so deep
    num_layers: int | None = None
    prompt_lookup_min: int | None = None  # None: the value of ..._max; 2 and 5 without either
    prompt_lookup_max: int | None = None
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
            if name in _BROUGHT:
                raise InvalidOption(
                    f'"{name}" is no method: it guesses by itself for requests that bring '
                    f"{_BROUGHT[name]}; leave it out."
                )
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
            good = value is None or _is_order(value)
            require(good, name, value, f"a whole number from 1 to {MAX_ORDER}")
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
        if self.method in _COMBINED and len(self.methods) < 2:
            raise InvalidOption(f'method "{self.method}" combines others; name them in "methods".')
        if self.methods and self.method not in _COMBINED:
            raise InvalidOption(f'"methods" belongs to {" and ".join(_COMBINED)}; drop it.')
        if any(name in (*_COMBINED, "auto") for name in self.methods):
            raise InvalidOption('"methods" cannot hold a combination; name single methods.')
        self._check_options()

    def _check_options(self) -> None:
        """Raise unless each method has the options that it needs, and each option a method that
        uses it."""
        for method in self.parts:
            for option, remedy in METHODS[method].needs.items():
                if getattr(self, option) is None:
                    raise InvalidOption(f'method "{method}" needs "{option}"; give {remedy}.')
        used = {option for part in self.parts for option in METHODS[part].options}
        given = dict.fromkeys(option for method in METHODS for option in self.own_options(method))
        if idle := [option for option in given if option not in used]:
            names, them = " or ".join(self.methods or [self.method]), "them" if idle[1:] else "it"
            raise InvalidOption(f'method "{names}" has no use for {", ".join(idle)}; drop {them}.')

    def own_options(self, method: str) -> dict[str, Any]:
        """Return the options of one method that differ from their defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        given = {name: getattr(self, name) for name in METHODS[method].options}
        return {name: value for name, value in given.items() if value != defaults[name]}

    @property
    def parts(self) -> tuple[str, ...]:
        """The single methods that guess, in order; for "auto", the one that is always there."""
        if self.method == "auto":
            return ("suffix",)
        return self.methods or (self.method,)

    @property
    def model_owner(self) -> str | None:
        """The method that `model` is for."""
        if self.model is None:
            return None
        return next(name for name in self.parts if "model" in METHODS[name].options)

    @property
    def prompt_lookup_lens(self) -> tuple[int, int]:
        """The shortest and the longest n-gram; as in vLLM, either defaults to the other."""
        least, most = self.prompt_lookup_min, self.prompt_lookup_max
        return least or most or 2, most or least or 5

    @property
    def depth(self) -> int:
        """The greatest depth of a proposal."""
        if self.num_speculative_tokens is not None:
            return self.num_speculative_tokens
        return min(METHODS[name].default_depth for name in self.parts)

    @property
    def num_trees(self) -> int:
        """How many trees one proposal may merge."""
        return len(self.methods) if self.method == "merge" else 1

    @property
    def max_nodes(self) -> int:
        """The most guesses of one proposal."""
        return self.depth * self.num_branches * self.num_trees

    @classmethod
    def of(cls, given: SpeculativeConfig | Mapping[str, Any] | None) -> SpeculativeConfig | None:
        """Read the engine's option: a configuration, a mapping, or None for plain decoding."""
        if given is None or isinstance(given, SpeculativeConfig):
            return given
        rule = 'SpeculativeConfig, a mapping like {"method": "ngram"}, or None'
        require(isinstance(given, Mapping), "speculative_config", given, rule)
        return cls.from_dict(given)

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> SpeculativeConfig:
        """Build from a mapping; as in vLLM, a `model` alone means method "draft_model"."""
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
