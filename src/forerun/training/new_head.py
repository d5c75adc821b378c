"""A head before its first step: its config, its draft vocabulary and its first weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forerun.drafters.heads import HEAD_KINDS, HeadConfig
from forerun.drafters.heads.folder import D2T
from forerun.errors import InvalidOption
from forerun.models.config import ModelConfig
from forerun.training.options import TrainOptions
from forerun.training.texts import Text
from forerun.training.torch_heads import EMBEDDING, LOOK_AHEAD, Weights
from forerun.training.torch_target import TorchTarget

_WHOLE_VOCABULARY: Final = ("distilled", "mtp", "pass")
# Weights that start as 0. So `medusa` and `blockwise` first guess the target's next token at every
# place, and a `block` is its `fc` alone, as if it had no layers and no Markov step.
_ZERO: Final = ("bias", "linear.weight", "markov.gate.weight", "markov.out.weight")
_ZERO_IN_LAYERS: Final = ("o_proj.weight", "down_proj.weight")


def new_config(options: TrainOptions, c: ModelConfig, **target: Any) -> HeadConfig:
    """Return a new head's config: layers of the target's shape, or a small head for each place.

    `target` are the fields that identify the target.
    """
    kind, num_places = options.kind, options.num_places or 5
    size = options.draft_vocab_size or (c.vocab_size if kind in _WHOLE_VOCABULARY else 8192)
    common: dict[str, Any] = {
        "kind": kind,
        "layers": _layers(options, c.num_layers),
        "draft_vocab_size": min(size, c.vocab_size),
        "rms_norm_eps": c.rms_norm_eps,
        "intermediate_size": c.intermediate_size,
        **target,
    }
    if kind in ("distilled", "pass"):
        _check_whole(options, c)
    if kind in ("medusa", "blockwise"):
        return HeadConfig(num_guesses=num_places, **common)
    if kind == "distilled":
        return HeadConfig(**{**common, **_narrow(c)})
    is_block = kind == "block"
    has_own_norms = kind in ("block", "eagle3") and not options.exportable
    return HeadConfig(
        num_heads=c.num_heads,
        num_kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        rope_theta=c.rope_theta,
        max_len=c.max_len,
        fc_norm=has_own_norms,
        norm_output=has_own_norms,
        num_hidden_layers=2 if is_block else 0,
        markov_rank=128 if is_block else 0,
        num_guesses=num_places if kind in ("block", "pass") else 0,
        **common,
    )


def _narrow(c: ModelConfig) -> dict[str, Any]:
    """Return the shape of a distilled model: four layers of a third of the target's width."""
    width = max(32, c.hidden_size // 3 // 32 * 32)
    head_dim = 64 if width % 64 == 0 else 32
    return {
        "hidden_size": width,
        "intermediate_size": -(-8 * width // 3 // 32) * 32,
        "num_hidden_layers": 4,
        "num_heads": width // head_dim,
        "num_kv_heads": width // head_dim,
        "head_dim": head_dim,
        "rope_theta": c.rope_theta,
        "max_len": c.max_len,
    }


def _check_whole(options: TrainOptions, c: ModelConfig) -> None:
    if options.kind == "pass" and c.sliding_window is not None:
        raise InvalidOption("pass cannot be trained for a target with a sliding window yet.")
    if options.draft_vocab_size not in (None, c.vocab_size):
        raise InvalidOption(f"{options.kind} guesses all ids: leave draft_vocab_size out.")


def kept_config(options: TrainOptions, config: HeadConfig) -> HeadConfig:
    """Return the config of a head that is trained further.

    It may get more draft tokens and places; other layers or norms are rejected.
    """
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


def first_weights(config: HeadConfig, target: TorchTarget, tokens: Tensor, seed: int) -> Weights:
    """Return the weights from which training starts.

    The norm and the head are the target's own, look-ahead tokens the mean of all embeddings, and
    other weights ones (norms), zeros (`_ZERO`) or small random numbers.
    """
    rng = np.random.default_rng(seed)
    head = target.head[tokens].float().cpu().numpy()
    weights: Weights = {}
    for name, shape in HEAD_KINDS[config.kind].shapes(config).items():
        if name == D2T:
            continue
        if name == EMBEDDING:
            weights[name] = _narrowed(target.embedding.float(), shape[1])
        elif name == LOOK_AHEAD:  # not id 0: often the end of a text, which teaches nothing
            start = target.embedding.float().mean(0) - target.embedding[0].float()
            weights[name] = np.tile(start.cpu().numpy(), (shape[0], 1))
        elif shape == head.shape:
            weights[name] = head
        elif name in ("norm.weight", "mtp.norm.weight"):
            weights[name] = target.norm.float().cpu().numpy()
        elif len(shape) == 1 and not name.endswith("bias"):
            weights[name] = np.ones(shape, np.float32)
        elif name.endswith(_ZERO) or (
            name.startswith(("layers.", "places.", "mtp.layers."))
            and name.endswith(_ZERO_IN_LAYERS)
        ):
            weights[name] = np.zeros(shape, np.float32)
        else:
            drawn = rng.standard_normal(shape) / math.sqrt(shape[-1])
            weights[name] = drawn.astype(np.float32)
    return weights


def _narrowed(table: Tensor, width: int) -> npt.NDArray[np.float32]:
    """Return embeddings along their `width` principal directions: [V, width]"""
    _, directions = torch.linalg.eigh(table.T @ table)
    narrow: npt.NDArray[np.float32] = (table @ directions[:, -width:]).cpu().numpy()
    missing = np.zeros((len(narrow), width - narrow.shape[1]), np.float32)
    return np.concatenate((narrow, missing), axis=1)


def grown(old: Weights, first: Weights, kept: Sequence[int], tokens: Sequence[int]) -> Weights:
    """Return the weights of a head that gets more draft tokens or places.

    `first` are the weights of a new head with draft `tokens`; `kept` are the draft tokens of the
    old one. New places start as copies of the old head's last one.
    """
    rows = {token: idx for idx, token in enumerate(kept)}
    pairs = [(idx, rows[token]) for idx, token in enumerate(tokens) if token in rows]
    new, known = (list(each) for each in zip(*pairs, strict=True))
    found = dict(first)
    for name, weight in old.items():
        if name in ("places.weight", "look_ahead.weight"):
            more = len(first[name]) - len(weight)
            found[name] = np.concatenate((weight, np.repeat(weight[-1:], more, axis=0)))
        elif len(weight) == len(kept) != len(first[name]):
            found[name] = first[name].copy()
            found[name][new] = weight[known]
        else:
            found[name] = weight
    return found


def _layers(options: TrainOptions, num_layers: int) -> tuple[int, ...]:
    own = default_layers(num_layers) if options.kind in ("block", "eagle3") else (num_layers,)
    layers = tuple(options.layers or own)
    if layers[-1] > num_layers:
        raise InvalidOption(f"layers {list(layers)} go beyond the target's {num_layers}.")
    if options.kind not in ("block", "eagle3") and layers != own:
        raise InvalidOption(f"{options.kind} looks at layer {num_layers} alone: leave layers out.")
    return layers


def default_layers(num_layers: int) -> tuple[int, ...]:
    """Return a low, a middle and a high layer, as EAGLE-3's checkpoints have them."""
    low, high = min(2, num_layers // 2), max(num_layers - 3, num_layers // 2 + 1)
    return tuple(sorted({low, num_layers // 2, high}))


def draft_vocabulary(texts: Sequence[Text], size: int, needed: Sequence[int]) -> list[int]:
    """Return `size` ids: those `needed`, then those that answers use most.

    If that is too few, the lowest ids follow, which tokenizers give to the most frequent tokens.
    """
    counts = Counter(token for text in texts for token in text.tokens[text.answer :])
    most = [token for token, _ in counts.most_common()]
    chosen = dict.fromkeys([*needed, *most, *range(size)])
    return sorted(list(chosen)[:size])
