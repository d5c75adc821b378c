"""From a speculative config to a drafter that is ready to guess."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forerun.drafters import (
    Drafter,
    DraftModel,
    Hybrid,
    Merge,
    NgramTables,
    PromptLookup,
    RandomTokens,
)
from forerun.engine.pages import pages_for
from forerun.engine.speculative_config import SpeculativeConfig
from forerun.engine.step import Speculation
from forerun.models.compatibility import check_compatible
from forerun.models.llama import LlamaModel
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class Target:
    """What drafters must fit."""

    model: LlamaModel
    tokenizer: Tokenizer
    max_len: int
    max_num_seqs: int
    cache_dir: Path | None


def build_speculation(config: SpeculativeConfig, target: Target) -> Speculation:
    parts = [_build(method, config, target) for method in config.parts]
    num_branches, depth = config.num_branches, config.num_speculative_tokens
    if len(parts) == 1:
        return Speculation(parts[0], depth, num_branches, depth * num_branches)
    if config.method == "merge":
        return Speculation(Merge(parts), depth, num_branches, depth * num_branches * len(parts))
    return Speculation(Hybrid(parts), depth, num_branches, depth * num_branches)


def _build(method: str, config: SpeculativeConfig, target: Target) -> Drafter:
    vocab_size = target.model.config.vocab_size
    match method:
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
    max_nodes = config.num_speculative_tokens * config.num_branches
    num_pages, page_size = pages_for(target.max_len + max_nodes, target.max_num_seqs)
    cache = model.new_cache(num_pages, page_size)
    return DraftModel(model, cache, target.model.config.vocab_size)
