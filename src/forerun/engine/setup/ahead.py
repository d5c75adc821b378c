"""Kernels that are compiled before the first pass, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final
from weakref import WeakSet

from forerun.cache import KVCache
from forerun.cache.cache_size import CacheSize
from forerun.engine.step import Core
from forerun.interrupts import safe_point
from forerun.kernels import CompiledKernels, Kernels, Plan
from forerun.models.llama import LlamaModel, Taps
from forerun.sampling import CoupledDraws
from forerun.types import SamplingParams, Span, Tree

# Tokens of a pass and how many of them are asked for: kernels have tiles for so many rows. A plain
# one, a verification, chunks of prompts.
_PASSES: Final = ((1, 1), (8, 8), (16, 16), (20, 20), (16, 1), (32, 1), (64, 1), (128, 1))
_NUM_LAYERS: Final = 2  # the kernels of a layer are those of any other
_RECORDED: Final = (1, 8, 16, 20)  # tokens
_LONG_CONTEXT: Final = 2000  # tokens; behind fewer the same recordings do
_CONTEXTS: Final = (0, 512)  # attention has other kernels behind many tokens
_compiled: WeakSet[LlamaModel] = WeakSet()


def compile_target(model: LlamaModel) -> None:
    """What passes need, greedy and drawn, of the usual sizes; once for a model."""
    if model in _compiled:
        return
    _compiled.add(model)
    with compiling(model.kernels) as is_useful:
        if not is_useful:
            return
        few = model.first_layers(min(_NUM_LAYERS, model.num_layers))
        size = CacheSize.for_requests(1, max(_CONTEXTS) + _PASSES[-1][0])
        cache = few.new_cache(size.num_pages, size.page_size)
        for context_len in _CONTEXTS:
            for sizes in _PASSES:
                _run(few, cache, *sizes, context_len)
        _run(few, cache, 1, 1, 0, SamplingParams())


def record_passes(core: Core, layers: tuple[int, ...]) -> None:
    """Plain passes and verifications that a lookup's guesses may need, behind short and long texts,
    with hidden states of `layers` and without, so that they are not recorded inside an answer."""
    if not core.model.kernels.begins_early:
        return
    room = core.max_len - max(_RECORDED)
    contexts = [0, min(_LONG_CONTEXT, room)] if room > 0 else []
    for tapped in {(), layers}:
        for context_len in contexts:
            for num in _RECORDED:
                taps = Taps(tapped) if tapped else None
                _run(core.model, core.cache, num, num, context_len, taps=taps)


def _run(
    model: LlamaModel,
    cache: KVCache,
    num_tokens: int,
    num_wanted: int,
    context_len: int,
    params: SamplingParams | None = None,
    taps: Taps | None = None,
) -> None:
    """One pass over nothing in particular."""
    safe_point()
    table = cache.new_table()
    table.reserve(context_len)
    wanted = tuple(range(num_tokens - num_wanted, num_tokens))
    tree, start = Tree.chain(num_tokens), table.reserve(num_tokens)
    plan = Plan.build([(Span(start, (0,) * num_tokens, tree, wanted), table)])
    draws = CoupledDraws.greedy(num_wanted)
    if params is not None:
        draws = replace(draws, params=params)
    model.draw(plan, cache, [draws], taps)
    table.free()


@contextmanager
def compiling(kernels: Kernels) -> Iterator[bool]:
    """Whether passes inside are for nothing but what has to be compiled for them."""
    if isinstance(kernels, CompiledKernels) and kernels.compiles:
        with kernels.compiling():
            yield True
    else:
        yield False
