"""From options to everything a step works with."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.cache.cache_size import CacheSize
from forerun.drafters import (
    Budget,
    Drafter,
    DraftModel,
    GivenPrediction,
    Hybrid,
    Merge,
    NgramTables,
    PromptLookup,
    RandomTokens,
    SuffixLookup,
)
from forerun.drafters.prediction import PREDICTION
from forerun.engine.guarded_drafters import GuardedDrafters
from forerun.engine.memory import CacheMemory
from forerun.engine.metrics import Metrics
from forerun.engine.planner import Adaptive, FixedDepth, Planner
from forerun.engine.request import Request
from forerun.engine.scheduling.limits import SchedulerLimits
from forerun.engine.scheduling.scheduler import Scheduler
from forerun.engine.scheduling.target_pool import TargetPool
from forerun.engine.speculation import Speculation
from forerun.engine.speculative_config import SpeculativeConfig
from forerun.engine.step import Core
from forerun.errors import InvalidOption
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.text.compatibility import check_compatible
from forerun.models.text.tokenizer import Tokenizer
from forerun.planning.controller import Controller, Limits
from forerun.planning.cost_model import CostModel
from forerun.types import Span

_PASS_TOKENS: Final = 256  # in one pass: prompts are read in chunks beside running answers
_CALIBRATION_SIZES: Final = (1, 2, 4, 8)
_CALIBRATION_SECONDS: Final = 0.15  # for a turn over all sizes
_NUM_REPEATS: Final = 2
_MAX_REPEATS: Final = 8  # on a restless machine


@dataclass(frozen=True)
class Target:
    """What is served. `max_len` None: as long as the model's context and the memory allow."""

    model: LlamaModel
    tokenizer: Tokenizer
    max_len: int | None
    memory: CacheMemory
    cache_dir: Path | None  # where pulled models are


def build_core(target: Target, config: SpeculativeConfig | None) -> Core:
    """Draft models are loaded first: their caches come out of the same memory."""
    drafts = {} if config is None else _load_drafts(config, target)
    trained = target.model.config.max_len
    row_len = (target.max_len or trained) + (config.max_nodes if config else 0)
    size = target.memory.size(row_len, [target.model, *drafts.values()])
    max_len = _checked_len(target.max_len or min(trained, size.num_rows), size)
    _warn_of_short_contexts(drafts, max_len)
    max_num_seqs = target.memory.max_num_seqs
    requests: dict[int, Request] = {}
    try:
        cache = target.model.new_cache(size.num_pages, size.page_size)
        speculation = None
        if config is not None:
            speculation = _build_speculation(config, target, drafts, size)
    except MemoryError:
        raise InvalidOption(
            f"there is no memory for {max_num_seqs} × {max_len} tokens; "
            f"lower max_model_len or max_num_seqs, or set kv_cache_memory to what there is."
        ) from None
    limits = SchedulerLimits(max_len, max_num_seqs, max(_PASS_TOKENS, max_num_seqs))
    scheduler = Scheduler(limits, TargetPool(cache, requests))
    return Core(target.model, cache, max_len, speculation, scheduler, requests, Metrics())


def _checked_len(max_len: int, size: CacheSize) -> int:
    """A context that one text could never fill would be a promise to nobody."""
    if not 1 < max_len <= size.num_rows:
        raise InvalidOption(
            f"max_model_len={max_len} does not fit into kv_cache_memory, which holds "
            f"{size.num_rows} tokens; lower the one or raise the other."
        )
    return max_len


def _build_speculation(
    config: SpeculativeConfig,
    target: Target,
    drafts: Mapping[str, LlamaModel],
    size: CacheSize,
) -> Speculation:
    """One drafter, or several among which the controller chooses."""
    vocab_size = target.model.config.vocab_size
    models = {
        name: DraftModel(model, model.new_cache(size.num_pages, size.page_size), vocab_size)
        for name, model in drafts.items()
    }
    parts: dict[str, Drafter] = {
        name: models[name] if name in models else _build(name, config, vocab_size)
        for name in config.parts
    }
    drafters = parts
    if config.method == "merge":
        drafters = {"merge": Merge(list(parts.values()))}
    elif config.method == "hybrid" and not config.adaptive:
        drafters = {"hybrid": Hybrid(list(parts.values()))}
    drafters = {**drafters, PREDICTION: GivenPrediction()}
    own = {name: model for name, model in models.items() if name in drafters}
    guarded = GuardedDrafters(drafters, vocab_size, config.num_trees, own)
    return Speculation(guarded, _planner(config, target, guarded), tuple(models.values()))


def _planner(config: SpeculativeConfig, target: Target, drafters: GuardedDrafters) -> Planner:
    if not config.adaptive:
        first = next(iter(drafters.drafters))
        return FixedDepth(first, config.depth, config.num_branches)
    largest = min(_PASS_TOKENS, target.memory.max_num_seqs * (1 + config.max_nodes))
    measure = pass_timer(target.model, max(*_CALIBRATION_SIZES, largest))
    sizes = _sizes_to_calibrate(measure, largest)
    costs = CostModel.calibrate(measure, sizes, _NUM_REPEATS, _MAX_REPEATS)
    limits = Limits(config.depth, config.num_branches)
    return Adaptive(Controller(limits, costs), drafters, Budget(config.depth, config.num_branches))


def _sizes_to_calibrate(measure: Callable[[int], float], largest: int) -> list[int]:
    """A few always, and larger ones up to `largest` where that is quick: other sizes are learnt
    from the passes that have them."""
    sizes = list(_CALIBRATION_SIZES)
    seconds = sum(map(measure, sizes))
    while 2 * sizes[-1] <= largest and 2 * seconds <= _CALIBRATION_SECONDS:
        sizes.append(2 * sizes[-1])
        seconds += measure(sizes[-1])
    return sizes


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


def _build(method: str, config: SpeculativeConfig, vocab_size: int) -> Drafter:
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
    raise AssertionError(method)


def _load_drafts(config: SpeculativeConfig, target: Target) -> dict[str, LlamaModel]:
    """The models among the drafters, by method."""
    drafts = {}
    if "draft_model" in config.parts:
        assert config.model is not None
        checkpoint = open_checkpoint(config.model, target.cache_dir)
        check_compatible(target.tokenizer, load_tokenizer(checkpoint))
        drafts["draft_model"] = LlamaModel.load(checkpoint, target.model.kernels)
    if "own_layers" in config.parts:
        assert config.num_layers is not None
        drafts["own_layers"] = target.model.first_layers(config.num_layers)
    return drafts


def _warn_of_short_contexts(drafts: Mapping[str, LlamaModel], max_len: int) -> None:
    for name, model in drafts.items():
        if model.config.max_len < max_len:
            warnings.warn(
                f"the context of {name} is {model.config.max_len} tokens and the target's "
                f"{max_len}; longer texts go on without its guesses.",
                RuntimeWarning,
                stacklevel=4,
            )
