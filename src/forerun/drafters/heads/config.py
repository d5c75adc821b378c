"""A head's configuration: its `config.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from forerun.errors import InvalidOption, InvalidWeights, UnsupportedModel
from forerun.models.fields import Fields

FORMAT: Final = "forerun-head-1"
ADVICE: Final = "train the head again, or get it anew"


@dataclass(frozen=True)
class HeadConfig:
    """A head's kind, target and sizes; `layers` are numbered as in `models.llama.Taps`."""

    kind: str  # one of `kinds.registry.HEAD_KINDS`
    layers: tuple[int, ...]
    target_hidden_size: int
    target_vocab_size: int
    target_num_layers: int
    tokenizer_hash: str
    draft_vocab_size: int
    target_fingerprint: str = ""  # that of `shipped.model_fingerprint`
    rms_norm_eps: float = 1e-5
    # kinds with decoder layers; these are as wide as the target, except in distilled
    intermediate_size: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    rope_theta: float = 10000.0
    max_len: int = 0
    fc_norm: bool = False  # EAGLE-3.1: each feature is normalised before they are fused
    norm_output: bool = False  # EAGLE-3.1: the output of the last norm is fed back
    norm_before_residual: bool = False  # as in vLLM's speculators
    # block and distilled
    num_hidden_layers: int = 0
    # distilled: a model of its own width
    hidden_size: int = 0
    # block
    markov_rank: int = 0
    # kinds that do not feed back: the number of places guessed at once
    num_guesses: int = 0

    @property
    def is_fed_back(self) -> bool:
        """Whether the head runs once for every guess, not once for all."""
        return self.kind in ("distilled", "eagle3", "mtp")

    def written(self) -> dict[str, Any]:
        """Return the contents of `config.json`; a distilled model's is a Llama config as well."""
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
        """Raise `InvalidOption` if `found`, the target's values, are not those of the config."""
        words = {
            "target_hidden_size": "hidden size",
            "target_vocab_size": "vocabulary size",
            "target_num_layers": "number of layers",
            "tokenizer_hash": "tokenizer",
        }
        for name, value in found.items():
            if getattr(self, name) != value and getattr(self, name):  # 0 and "" mean unknown
                raise InvalidOption(
                    f"{where} was trained for another target: its {words[name]} is "
                    f"{getattr(self, name)}, and this target's {value}; take a head made for it."
                )


def read_config(values: Mapping[str, Any], path: Path) -> HeadConfig:
    """Read a config and check each value; `path` is its file, named in errors."""
    if values.get("format") != FORMAT:
        raise UnsupportedModel(f"{path}: format is not {FORMAT!r}; this is no head of Forerun's.")
    given = Fields(values, path, advice=ADVICE)
    readers: dict[str, Callable[[str, Any], Any]] = {
        "str": given.text,
        "int": lambda name, default: given.size(name, default, least=0),
        "float": given.positive,
        "bool": given.flag,
        "tuple[int, ...]": lambda name, _: given.integers(name),
    }
    found = {
        field.name: readers[str(field.type)](
            field.name, None if field.default is MISSING else field.default
        )
        for field in fields(HeadConfig)
    }
    config = HeadConfig(**found)
    check_layers(config.layers, f"{path}: 'layers'")
    if config.layers[-1] > config.target_num_layers:
        raise InvalidWeights(
            f"{path}: 'layers' are {list(config.layers)}, and its target has "
            f"{config.target_num_layers}; {ADVICE}."
        )
    sizes = (config.target_hidden_size, config.target_vocab_size, config.draft_vocab_size)
    if min(sizes) < 1 or config.draft_vocab_size > config.target_vocab_size:
        raise InvalidWeights(f"{path}: its sizes {list(sizes)} fit no head; {ADVICE}.")
    return config


def check_layers(layers: Sequence[int], what: str) -> None:
    """Raise `InvalidWeights` unless the layers ascend: that is the order of tapped features."""
    if list(layers) != sorted(set(layers)) or min(layers) < 0:
        raise InvalidWeights(
            f"{what} are {list(layers)}, which do not ascend from 0 or more; write in those that "
            "the head was trained on, or train again."
        )
