"""Compiling and recording passes before the first request needs them."""

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

# (tokens of a pass, rows whose logits are wanted): kernels have tiles for these numbers of rows. A
# plain pass, verifications, chunks of prompts.
_PASSES: Final = ((1, 1), (8, 8), (16, 16), (20, 20), (16, 1), (32, 1), (64, 1), (128, 1))
_NUM_LAYERS: Final = 2  # enough, since all layers have the same kernels
_RECORDED: Final = (1, 8, 16, 20)  # tokens
_LONG_CONTEXT: Final = 2000  # tokens; shorter contexts use the same recordings
_CONTEXTS: Final = (0, 512)  # tokens; attention has other kernels for a long context
_compiled: WeakSet[LlamaModel] = WeakSet()


def compile_target(model: LlamaModel) -> None:
    """Compile the kernels of passes of the usual sizes, greedy and drawn; once for each model."""
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
    """Record plain passes and the verifications of a lookup's guesses, so that no answer waits for
    it: after short and long contexts, with and without hidden states of `layers`."""
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
    """Run one pass over `num_tokens` arbitrary tokens, with the last `num_wanted` rows wanted."""
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
    """A section whose passes run nothing and only find out what has to be compiled; it yields
    False, and changes nothing, for kernels that are not compiled."""
    if isinstance(kernels, CompiledKernels) and kernels.compiles:
        with kernels.compiling():
            yield True
    else:
        yield False
