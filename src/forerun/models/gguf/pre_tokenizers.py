"""How byte-level vocabularies cut text into words before merging, by GGUF's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tokenizers import Regex, normalizers, pre_tokenizers

_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3: Final = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_ENDS}"
_QWEN2: Final = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_ENDS}"
_UPPER: Final = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER: Final = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_TEKKEN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """One way to cut text, and the settings that go with it."""

    splitter: pre_tokenizers.PreTokenizer
    normalizer: normalizers.Normalizer | None = None
    ignores_merges: bool = False  # a word that is a token stays whole
    adds_bos: bool = False


def _gpt2() -> PreTokenizer:
    return PreTokenizer(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))


def _digits_then_gpt2() -> PreTokenizer:
    """Cut off each digit, then words as in GPT-2 (SmolLM, StarCoder)."""
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return PreTokenizer(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    )


def _by_pattern(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, letters])


def _llama3() -> PreTokenizer:
    return PreTokenizer(_by_pattern(_LLAMA3), ignores_merges=True, adds_bos=True)


def _qwen2() -> PreTokenizer:
    return PreTokenizer(_by_pattern(_QWEN2), normalizer=normalizers.NFC())


def _tekken() -> PreTokenizer:
    return PreTokenizer(_by_pattern(_TEKKEN), ignores_merges=True, adds_bos=True)


# "default" means that the converter did not know the model; GPT-2's way is the common ancestor.
PRE_TOKENIZERS: Final[dict[str, Callable[[], PreTokenizer]]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _digits_then_gpt2,
    "starcoder": _digits_then_gpt2,
    "refact": _digits_then_gpt2,
    "command-r": _digits_then_gpt2,
    "llama-bpe": _llama3,
    "llama3": _llama3,
    "llama-v3": _llama3,
    "qwen2": _qwen2,
    "deepseek-r1-qwen": _qwen2,
    "tekken": _tekken,
}
