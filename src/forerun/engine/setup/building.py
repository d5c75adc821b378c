"""Building everything that a step works with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Final

from forerun.cache.cache_size import CacheSize
from forerun.drafters import (
    GRAMMAR,
    PREDICTION,
    Budget,
    CachedDrafter,
    Drafter,
    GivenPrediction,
    GrammarWalk,
    Target,
)
from forerun.engine.metrics import Metrics
from forerun.engine.request.request import Request
from forerun.engine.scheduling.limits import SchedulerLimits
from forerun.engine.scheduling.scheduler import Scheduler
from forerun.engine.scheduling.target_pool import TargetPool
from forerun.engine.setup.ahead import compile_target, compiling, record_passes
from forerun.engine.setup.drafting import Drafting
from forerun.engine.setup.memory import CacheMemory
from forerun.engine.setup.trial import Trial
from forerun.engine.step import Core
from forerun.errors import InvalidOption
from forerun.speculation.acceptance import START_WEIGHT
from forerun.speculation.config import SpeculativeConfig
from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.heads.card_check import CardCheck
from forerun.speculation.methods import combined
from forerun.speculation.speculation import Speculation

_PASS_TOKENS: Final = 256  # most tokens of a pass: prompts run in chunks beside running answers
# Trials that a head's card counts for where rounds begin early. A request that stops using the head
# does so for many rounds there, and a few misses in a row are no reason for that.
_CARD_TRIALS: Final = 12.0


def build_core(
    target: Target, memory: CacheMemory, wanted_len: int | None, config: SpeculativeConfig | None
) -> Core:
    """Build a core with room for texts of `wanted_len` tokens, or by default for as many as the
    model's context and the memory allow.

    Drafters are built first, since their caches come out of the same memory.
    """
    compile_target(target.model)
    drafting = Drafting.of(config, target, _PASS_TOKENS, memory.max_num_seqs)
    drafters = drafting.drafters
    cached = {name: d for name, d in drafters.items() if isinstance(d, CachedDrafter)}
    trained = target.model.config.max_len
    row_len = (wanted_len or trained) + (config.max_nodes if config else 0)
    row_bytes = [target.model.row_bytes, *(drafter.row_bytes for drafter in cached.values())]
    size = memory.size(row_len, row_bytes, target.model.kernels.free_bytes())
    max_len = _checked_len(wanted_len or min(trained, size.num_rows), size)
    _warn_of_short_contexts(cached, max_len)
    max_num_seqs = memory.max_num_seqs
    requests: dict[int, Request] = {}
    try:
        cache = target.model.new_cache(size.num_pages, size.page_size)
        for drafter in cached.values():
            drafter.allocate(size.num_pages, size.page_size)
        limits = SchedulerLimits(max_len, max_num_seqs, max(_PASS_TOKENS, max_num_seqs))
        scheduler = Scheduler(limits, TargetPool(cache, requests))
        core = Core(target.model, cache, max_len, None, scheduler, requests, Metrics())
        if config is None:
            return core
        return replace(core, speculation=_build_speculation(config, core, target, drafting))
    except MemoryError:
        raise InvalidOption(
            f"there is no memory for {max_num_seqs} × {max_len} tokens; "
            f"lower max_model_len or max_num_seqs, or set kv_cache_memory to what there is."
        ) from None


def _checked_len(max_len: int, size: CacheSize) -> int:
    """Return `max_len` if the cache can hold one text of that length."""
    if not 1 < max_len <= size.num_rows:
        raise InvalidOption(
            f"max_model_len={max_len} does not fit into the KV cache, which holds "
            f"{size.num_rows} tokens; lower it, or raise kv_cache_memory where there is more."
        )
    return max_len


def _build_speculation(
    config: SpeculativeConfig, core: Core, target: Target, drafting: Drafting
) -> Speculation:
    controller, model = None, core.model
    if drafting.passes is not None:
        trial = Trial(core, target.tokenizer)
        with compiling(model.kernels) as is_useful:
            if is_useful:
                drafting.compile_heads(trial, config.depth)
        costs = Costs(drafting.passes, drafting.timed_heads(model))
        if model.kernels.begins_early:
            costs.expect_waste()
        drafting.try_heads(costs, trial, config.depth)
        record_passes(core, drafting.layers)
        controller = Controller(costs)
    # These come first: without a controller, a request's first drafter is the one that guesses.
    named: dict[str, Drafter] = {
        PREDICTION: GivenPrediction(spell=target.tokenizer.token_bytes),
        GRAMMAR: GrammarWalk(spell=target.tokenizer.token_bytes),
        **combined(config, drafting.drafters),
    }
    drafters = GuardedDrafters(named, model.config.vocab_size, config.num_trees)
    ceiling = Budget(config.depth, config.num_branches)
    if controller is not None:
        for name, card in drafting.cards.items():
            if not card.chances:
                continue
            first, *then = card.chances
            weight = _CARD_TRIALS if model.kernels.begins_early else START_WEIGHT
            controller.expect(name, (first, fmean(then or (first,)), weight))
    speculation = Speculation(drafters, controller, ceiling)
    speculation.depths, speculation.left_out = drafting.depths, drafting.left_out
    speculation.cards = CardCheck(drafting.cards) if drafting.cards else None
    speculation.is_steady = model.kernels.begins_early
    return speculation


def _warn_of_short_contexts(cached: Mapping[str, CachedDrafter], max_len: int) -> None:
    for name, drafter in cached.items():
        if drafter.max_len < max_len:
            warnings.warn(
                f"the context of {name} is {drafter.max_len} tokens and the target's "
                f"{max_len}; longer texts go on without its guesses.",
                RuntimeWarning,
                stacklevel=4,
            )
