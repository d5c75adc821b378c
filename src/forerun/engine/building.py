"""From a speculative config to drafters that are ready to guess."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.cache.cache_size import CacheSize
from forerun.drafters import (
    Budget,
    Drafter,
    DraftModel,
    Hybrid,
    Merge,
    NgramTables,
    PromptLookup,
    RandomTokens,
    SuffixLookup,
)
from forerun.engine.planner import Adaptive, FixedDepth, Planner
from forerun.engine.speculation import Speculation
from forerun.engine.speculative_config import SpeculativeConfig
from forerun.kernels import Plan
from forerun.models.compatibility import check_compatible
from forerun.models.llama import LlamaModel
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.tokenizer import Tokenizer
from forerun.planning.controller import Controller, Limits
from forerun.planning.cost_model import CostModel
from forerun.types import Span

_CALIBRATION_SIZES: Final = (1, 2, 4, 8)
_NUM_REPEATS: Final = 2
_MAX_REPEATS: Final = 8  # on a restless machine


@dataclass(frozen=True)
class Target:
    """What drafters must fit."""

    model: LlamaModel
    tokenizer: Tokenizer
    max_len: int
    max_num_seqs: int
    cache_dir: Path | None


def build_speculation(config: SpeculativeConfig, target: Target) -> Speculation:
    """One drafter, or several among which the controller chooses."""
    drafters = {name: _build(name, config, target) for name in config.parts}
    pools = tuple(d for d in drafters.values() if isinstance(d, DraftModel))
    max_nodes = config.depth * config.num_branches
    if config.method == "merge":
        max_nodes *= len(drafters)
        drafters = {"merge": Merge(list(drafters.values()))}
    elif len(drafters) > 1 and not config.adaptive:
        drafters = {"hybrid": Hybrid(list(drafters.values()))}
    planner = _planner(config, target, drafters)
    return Speculation(drafters, planner, pools, max_nodes, target.model.config.vocab_size)


def _planner(config: SpeculativeConfig, target: Target, drafters: dict[str, Drafter]) -> Planner:
    if not config.adaptive:
        (name,) = drafters
        return FixedDepth(name, config.depth, config.num_branches)
    measure = pass_timer(target.model, max(_CALIBRATION_SIZES))
    costs = CostModel.calibrate(measure, _CALIBRATION_SIZES, _NUM_REPEATS, _MAX_REPEATS)
    limits = Limits(config.depth, config.num_branches)
    return Adaptive(Controller(limits, costs), drafters, Budget(config.depth, config.num_branches))


def pass_timer(model: LlamaModel, max_tokens: int) -> Callable[[int], float]:
    """Seconds that one pass over some tokens takes here and now, on an empty context."""
    size = CacheSize.for_requests(1, max_tokens)
    cache = model.new_cache(size.num_pages, size.page_size)

    def measure(num_tokens: int) -> float:
        table = cache.new_table()
        span = Span.all_wanted(table.reserve(num_tokens), (0,) * num_tokens)
        began = time.perf_counter()
        model.forward(Plan.build([(span, table)]), cache)
        seconds = time.perf_counter() - began
        table.free()
        return seconds

    return measure


def _build(method: str, config: SpeculativeConfig, target: Target) -> Drafter:
    vocab_size = target.model.config.vocab_size
    match method:
        case "suffix":
            return SuffixLookup(
                config.suffix_min_match,
                config.suffix_max_match,
                config.suffix_min_chance,
                config.suffix_max_shared_tokens,
            )
        case "prompt_lookup" | "ngram":
            return PromptLookup(config.prompt_lookup_min, config.prompt_lookup_max)
        case "ngram_tables":
            return NgramTables(vocab_size, config.ngram_orders, config.ngram_window)
        case "unigram":
            return NgramTables(vocab_size, (1,), config.ngram_window)
        case "bigram":
            return NgramTables(vocab_size, (2,), config.ngram_window)
        case "random":
            return RandomTokens(vocab_size)
        case "draft_model":
            return _draft_model(_load_draft(config, target), config, target)
        case "own_layers":
            assert config.num_layers is not None
            return _draft_model(target.model.first_layers(config.num_layers), config, target)
    raise AssertionError(method)


def _load_draft(config: SpeculativeConfig, target: Target) -> LlamaModel:
    assert config.model is not None
    checkpoint = open_checkpoint(config.model, target.cache_dir)
    check_compatible(target.tokenizer, load_tokenizer(checkpoint))
    return LlamaModel.load(checkpoint, target.model.kernels)


def _draft_model(model: LlamaModel, config: SpeculativeConfig, target: Target) -> DraftModel:
    """With a cache of its own: a row for every sequence, and the guesses that are fed."""
    max_nodes = config.depth * config.num_branches
    size = CacheSize.for_requests(target.max_num_seqs, target.max_len + max_nodes)
    cache = model.new_cache(size.num_pages, size.page_size)
    return DraftModel(model, cache, target.model.config.vocab_size)
