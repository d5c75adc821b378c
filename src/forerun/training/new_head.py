"""A head before its first step: its config, its vocabulary, and where its weights start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from forerun.drafters.heads import HeadConfig
from forerun.errors import InvalidOption
from forerun.models.config import ModelConfig
from forerun.training.options import TrainOptions
from forerun.training.texts import Text


def new_config(options: TrainOptions, c: ModelConfig, **target: Any) -> HeadConfig:
    """Layers of the target's own shape, or a small head for each place; `target` are the fields
    that name it."""
    size = min(options.draft_vocab_size or 8192, c.vocab_size)
    common: dict[str, Any] = {
        "kind": options.kind,
        "draft_vocab_size": size,
        "rms_norm_eps": c.rms_norm_eps,
        **target,
    }
    if options.kind in ("medusa", "blockwise"):
        return HeadConfig(
            layers=(c.num_layers,),
            num_guesses=options.num_places or 5,
            intermediate_size=c.intermediate_size if options.kind == "blockwise" else 0,
            **common,
        )
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


def check_kept(options: TrainOptions, config: HeadConfig) -> None:
    """Refuse what a head that is trained on cannot become."""
    kept = {
        "layers": config.layers,
        "draft_vocab_size": config.draft_vocab_size,
        "num_places": config.num_guesses or options.num_places,
        "exportable": not (config.fc_norm or config.norm_output),
    }
    for name, value in kept.items():
        asked = getattr(options, name)
        if asked and asked != value:
            shown = list(value) if isinstance(value, tuple) else value
            raise InvalidOption(
                f"{options.out} has a head with {name}={shown}, which stays: leave that option "
                "out, or choose another folder."
            )


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
