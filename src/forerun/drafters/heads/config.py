"""What a head is: its `config.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from forerun.errors import InvalidOption, InvalidWeights, UnsupportedModel

FORMAT: Final = "forerun-head-1"


@dataclass(frozen=True)
class HeadConfig:
    """What a head is, and for which target; `layers` are those of `models.llama.Taps`."""

    kind: str  # one of `kinds.registry.HEAD_KINDS`
    layers: tuple[int, ...]
    target_hidden_size: int
    target_vocab_size: int
    target_num_layers: int
    tokenizer_hash: str
    draft_vocab_size: int
    target_fingerprint: str = ""  # as `shipped.model_fingerprint` has it
    rms_norm_eps: float = 1e-5
    # decoder layers, but for distilled, as wide as the target
    intermediate_size: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    rope_theta: float = 10000.0
    max_len: int = 0
    fc_norm: bool = False  # 3.1: each feature is normalised before they are fused
    norm_output: bool = False  # 3.1: what is fed back has passed the last norm
    norm_before_residual: bool = False  # as vLLM's speculators have it
    # block and distilled
    num_hidden_layers: int = 0
    # distilled: a model of its own width
    hidden_size: int = 0
    # block
    markov_rank: int = 0
    # those that do not feed back: places that it guesses at once
    num_guesses: int = 0

    @property
    def is_fed_back(self) -> bool:
        """Whether it runs once for every guess, and not once for all."""
        return self.kind in ("distilled", "eagle3", "mtp")

    def written(self) -> dict[str, Any]:
        """As `config.json` has it. That of a distilled model is a Llama's as well."""
        values = {"format": FORMAT, **asdict(self)}
        if self.kind != "distilled":
            return values
        return values | {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.target_vocab_size,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "max_position_embeddings": self.max_len,
            "tie_word_embeddings": True,
            "torch_dtype": "float16",
        }

    def check_target(self, where: object, **found: object) -> None:
        """Refuse another target than the head's own; `found` are the target's values."""
        words = {
            "target_hidden_size": "hidden size",
            "target_vocab_size": "vocabulary size",
            "target_num_layers": "number of layers",
            "tokenizer_hash": "tokenizer",
        }
        for name, value in found.items():
            if getattr(self, name) != value and getattr(self, name):  # 0 and "": nobody knows
                raise InvalidOption(
                    f"{where} was trained for another target: its {words[name]} is "
                    f"{getattr(self, name)}, and this target's {value}; take a head made for it."
                )


def read_config(values: Mapping[str, Any], path: Path) -> HeadConfig:
    """Each value checked; `path` is where they stand."""
    if values.get("format") != FORMAT:
        raise UnsupportedModel(f"{path}: format is not {FORMAT!r}; this is no head of Forerun's.")
    found: dict[str, Any] = {}
    for field in fields(HeadConfig):
        value = values.get(field.name, field.default)
        if not _KINDS[str(field.type)](value):
            raise InvalidWeights(f"{path}: {field.name!r} is {str(value)[:40]!r}; train again.")
        found[field.name] = tuple(value) if field.name == "layers" else value
    config = HeadConfig(**found)
    _check_layers(config, path)
    sizes = (config.target_hidden_size, config.target_vocab_size, config.draft_vocab_size)
    if min(sizes) < 1 or config.draft_vocab_size > config.target_vocab_size:
        raise InvalidWeights(f"{path}: its sizes {list(sizes)} fit no head; train again.")
    return config


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


_KINDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "str": lambda value: isinstance(value, str),
    "int": _is_size,
    "float": lambda value: type(value) in (int, float) and 0 < value < 1e30,
    "bool": lambda value: isinstance(value, bool),
    "tuple[int, ...]": lambda value: (
        isinstance(value, list | tuple) and len(value) > 0 and all(map(_is_size, value))
    ),
}


def _check_layers(config: HeadConfig, path: Path) -> None:
    layers = config.layers
    if list(layers) != sorted(set(layers)) or layers[-1] > config.target_num_layers:
        raise InvalidWeights(
            f"{path}: layers {list(layers)} must ascend and be at most "
            f"{config.target_num_layers}, the target's; train again."
        )
