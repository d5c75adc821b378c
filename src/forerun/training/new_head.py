"""A head before its first step: its config, its vocabulary, and where its weights start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from forerun.drafters.heads import HeadConfig
from forerun.errors import InvalidOption
from forerun.models.config import ModelConfig
from forerun.training.options import TrainOptions
from forerun.training.texts import Text
from forerun.training.torch_heads import Weights


def new_config(options: TrainOptions, c: ModelConfig, **target: Any) -> HeadConfig:
    """A layer of the target's own shape, or one Medusa head for each place; `target` are the
    fields that name it."""
    size = min(options.draft_vocab_size or 8192, c.vocab_size)
    common: dict[str, Any] = {
        "kind": options.kind,
        "draft_vocab_size": size,
        "rms_norm_eps": c.rms_norm_eps,
        **target,
    }
    if options.kind == "medusa":
        return HeadConfig(layers=(c.num_layers,), num_guesses=options.num_places or 5, **common)
    is_block = options.kind == "block"
    return HeadConfig(
        layers=_layers(options, c.num_layers),
        intermediate_size=c.intermediate_size,
        num_heads=c.num_heads,
        num_kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        rope_theta=c.rope_theta,
        max_len=c.max_len,
        fc_norm=not options.exportable,
        norm_output=not options.exportable,
        num_hidden_layers=2 if is_block else 0,
        markov_rank=128 if is_block else 0,
        num_guesses=(options.num_places or 5) if is_block else 0,
        **common,
    )


def kept_config(options: TrainOptions, config: HeadConfig) -> HeadConfig:
    """The config of a head that is trained on: it may get more draft tokens and places. What it
    cannot become is refused."""
    kept = {
        "layers": config.layers,
        "exportable": not (config.fc_norm or config.norm_output),
    }
    grown = {
        "draft_vocab_size": config.draft_vocab_size,
        "num_places": config.num_guesses or options.num_places or 0,
    }
    for name, value in (kept | grown).items():
        asked = getattr(options, name)
        is_more = name in grown and bool(asked) and asked > value
        if asked and asked != value and not is_more:
            shown = list(value) if isinstance(value, tuple) else value
            raise InvalidOption(
                f"{options.out} has a head with {name}={shown}, which stays: leave that option "
                "out, or choose another folder."
            )
    return replace(
        config,
        draft_vocab_size=options.draft_vocab_size or config.draft_vocab_size,
        num_guesses=config.num_guesses and (options.num_places or config.num_guesses),
    )


def grown(old: Weights, first: Weights, kept: Sequence[int], tokens: Sequence[int]) -> Weights:
    """The weights of a head that gets more: `first` are those of a new one with draft `tokens`,
    the head knew `kept`. Places that it did not have begin as its last one."""
    rows = {token: idx for idx, token in enumerate(kept)}
    pairs = [(idx, rows[token]) for idx, token in enumerate(tokens) if token in rows]
    new, known = (list(each) for each in zip(*pairs, strict=True))
    found = dict(first)
    for name, weight in old.items():
        if name == "places.weight":
            more = len(first[name]) - len(weight)
            found[name] = np.concatenate((weight, np.repeat(weight[-1:], more, axis=0)))
        elif len(weight) == len(kept) != len(first[name]):
            found[name] = first[name].copy()
            found[name][new] = weight[known]
        else:
            found[name] = weight
    return found


def _layers(options: TrainOptions, num_layers: int) -> tuple[int, ...]:
    layers = tuple(options.layers or default_layers(num_layers))
    if layers[-1] > num_layers:
        raise InvalidOption(f"layers {list(layers)} go beyond the target's {num_layers}.")
    return layers


def default_layers(num_layers: int) -> tuple[int, ...]:
    """Low, middle and high, as EAGLE-3's checkpoints have them."""
    low, high = min(2, num_layers // 2), max(num_layers - 3, num_layers // 2 + 1)
    return tuple(sorted({low, num_layers // 2, high}))


def draft_vocabulary(texts: Sequence[Text], size: int, needed: Sequence[int]) -> list[int]:
    """The ids that answers use most, and those that end them; where they use fewer, the first ids,
    which tokenizers give to the most frequent tokens."""
    counts = Counter(token for text in texts for token in text.tokens[text.answer :])
    most = [token for token, _ in counts.most_common()]
    chosen = dict.fromkeys([*needed, *most, *range(size)])
    return sorted(list(chosen)[:size])
