"""Ways to push the same tokens through a model, for tests that compare them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forerun.cache import BlockTable, KVCache
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.types import Span, Tree

Logits = npt.NDArray[np.float32]


def all_wanted(start: int, tokens: Sequence[int], tree: Tree | None = None) -> Span:
    """A span that asks for every token's logits; a chain unless a tree is given."""
    tree = Tree.chain(len(tokens)) if tree is None else tree
    return Span(start, tuple(tokens), tree, tuple(range(len(tokens))))


def extend(
    model: LlamaModel,
    cache: KVCache,
    table: BlockTable,
    tokens: Sequence[int],
    tree: Tree | None = None,
) -> Logits:
    """Reserve, run one span, and leave its rows in the table: logits [T, V]."""
    span = all_wanted(table.reserve(len(tokens)), tokens, tree)
    return model.forward(Plan.build([(span, table)]), cache)


def chain_logits(
    model: LlamaModel, tokens: Sequence[int], chunk_len: int | None = None, page_size: int = 16
) -> Logits:
    """The logits [T, V] of a chain from an empty cache, in chunks of `chunk_len`."""
    cache = model.new_cache(-(-len(tokens) // page_size), page_size)
    table = cache.new_table()
    step = chunk_len or len(tokens)
    chunks = [tokens[lo : lo + step] for lo in range(0, len(tokens), step)]
    return np.concatenate([extend(model, cache, table, chunk) for chunk in chunks])
