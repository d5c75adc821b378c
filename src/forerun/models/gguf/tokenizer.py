"""A tokenizer from GGUF metadata: byte-level BPE ("gpt2") and SentencePiece ("llama") kinds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, processors

from forerun.errors import InvalidTokenizer
from forerun.models.fields import Fields
from forerun.models.gguf.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from forerun.models.text.token_bytes import Spelling
from forerun.models.text.tokenizer import Tokenizer, TokenizerTraits
from forerun.option_checks import is_whole

_UNKNOWN: Final = 2
_CONTROL: Final = 3
_USER_DEFINED: Final = 4
_UNUSED: Final = 5
# Control tokens of these names end an answer, as in llama.cpp: a file lists few ids, often only the
# end of a turn, but after a plain prompt the model writes the end of a text.
_ENDS: Final = frozenset(
    (
        *("</s>", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>"),
        *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>"),
        *("<EOT>", "_<EOT>", "[EOT]", "<end_of_utterance>"),
    )
)


def _strings(fields: Fields, name: str) -> list[str]:
    value = fields.get(name)
    found: list[str] = fields.checked(name, value, isinstance(value, list), "a list of strings")
    return found


def _numbers(fields: Fields, name: str, count: int) -> list[Any]:
    value = fields.get(name)
    good = isinstance(value, np.ndarray) and value.size == count
    found: list[Any] = fields.checked(name, value, good, f"{count} numbers, one a token").tolist()
    return found


def _token_id(fields: Fields, name: str, num_tokens: int) -> int | None:
    name += "_token_id"
    value = fields.get(name)
    good = value is None or (is_whole(value) and 0 <= value < num_tokens)
    found: int | None = fields.checked(name, value, good, f"an id below {num_tokens}")
    return found


def tokenizer_from_gguf(metadata: dict[str, Any]) -> Tokenizer:
    """Build the tokenizer that the metadata describes."""
    fields = Fields(metadata, "the tokenizer", "tokenizer.ggml.", InvalidTokenizer)
    tokens = _strings(fields, "tokens")
    is_distinct = bool(tokens) and len(set(tokens)) == len(tokens)
    fields.checked("tokens", tokens[:3], is_distinct, "a list of distinct strings")
    kinds = _numbers(fields, "token_type", len(tokens))
    model = str(fields.get("model"))
    if model == "gpt2":
        return _byte_level(fields, tokens, kinds)
    if model == "llama":
        return _sentencepiece(fields, tokens, kinds)
    raise InvalidTokenizer(
        f"tokenizer model {model[:40]!r} is not supported; use a GGUF file with 'gpt2' or 'llama'."
    )


def _byte_level(fields: Fields, tokens: list[str], kinds: list[int]) -> Tokenizer:
    pre = _pre_tokenizer(fields)
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = _listed_merges(fields, vocab)
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=pre.ignores_merges))
    if pre.normalizer is not None:
        backend.normalizer = pre.normalizer
    backend.pre_tokenizer = pre.splitter
    backend.decoder = decoders.ByteLevel()
    return _finish(backend, fields, tokens, kinds, Spelling.BYTE_LEVEL, adds_bos=pre.adds_bos)


def _pre_tokenizer(fields: Fields) -> PreTokenizer:
    name = str(fields.get("pre", "default"))
    if name not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise InvalidTokenizer(f"pre-tokenizer {name[:40]!r} is not supported; known are {known}.")
    return PRE_TOKENIZERS[name]()


def _listed_merges(fields: Fields, vocab: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    for line in _strings(fields, "merges"):
        left, _, right = line.partition(" ")
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise InvalidTokenizer(f"merge {line[:80]!r} joins unknown tokens; convert it anew.")
        merges.append((left, right))
    return merges


def _sentencepiece(fields: Fields, tokens: list[str], kinds: list[int]) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(tokens)}
    scores = _numbers(fields, "scores", len(tokens))
    unknown_id = _token_id(fields, "unknown", len(tokens))
    unknown = None if unknown_id is None else tokens[unknown_id]
    merges = _scored_merges(tokens, scores, vocab)
    backend = tokenizers.Tokenizer(
        models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    space_prefix = fields.flag("add_space_prefix", True)
    steps = [normalizers.Prepend("▁")] if space_prefix else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    joined = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    stripped = [decoders.Strip(" ", 1, 0)] if space_prefix else []
    backend.decoder = decoders.Sequence([*joined, *stripped])
    return _finish(
        backend, fields, tokens, kinds, Spelling.SENTENCEPIECE, True, strips_space=space_prefix
    )


def _scored_merges(
    tokens: list[str], scores: list[float], vocab: dict[str, int]
) -> list[tuple[str, str]]:
    """Return SentencePiece's merges: every split of a piece in two, best-scored pieces first."""
    merges = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = vocab.get(token[:cut]), vocab.get(token[cut:])
            if left is not None and right is not None:
                merges.append((-score, left, right))
    merges.sort()
    return [(tokens[left], tokens[right]) for _, left, right in merges]


def _finish(
    backend: tokenizers.Tokenizer,
    fields: Fields,
    tokens: list[str],
    kinds: list[int],
    spelling: Spelling,
    adds_bos: bool,
    strips_space: bool = False,
) -> Tokenizer:
    """Set added and special tokens, BOS and EOS around a prompt, and the traits."""
    special = [i for i, kind in enumerate(kinds) if kind in (_CONTROL, _UNKNOWN)]
    added = [i for i, kind in enumerate(kinds) if kind == _USER_DEFINED]
    backend.add_special_tokens([AddedToken(tokens[i], normalized=False) for i in special])
    backend.add_tokens([AddedToken(tokens[i], normalized=False) for i in added])
    ids = {name: _token_id(fields, name, len(tokens)) for name in ("bos", "eos", "eot", "eom")}
    around = {
        "bos": ids["bos"] if fields.flag("add_bos_token", adds_bos) else None,
        "eos": ids["eos"] if fields.flag("add_eos_token", False) else None,
    }
    _surround(backend, tokens, around["bos"], around["eos"])
    template = fields.values.get("tokenizer.chat_template")
    return Tokenizer(
        backend,
        TokenizerTraits(
            spelling=spelling,
            strips_space=strips_space,
            bos_id=ids["bos"],
            eos_ids=_end_ids((ids[name] for name in ("eos", "eot", "eom")), tokens, kinds),
            special_ids=frozenset(special),
            added_ids=frozenset(special + added),
            unused_ids=frozenset(i for i, kind in enumerate(kinds) if kind == _UNUSED),
            chat_template=template if isinstance(template, str) else None,
            template_variables={
                f"{name}_token": "" if i is None else tokens[i]
                for name, i in ids.items()
                if name in ("bos", "eos")
            },
        ),
    )


def _end_ids(listed: Iterable[int | None], tokens: list[str], kinds: list[int]) -> tuple[int, ...]:
    """Return the end ids that the file lists, then control tokens with the name of an end."""
    called = [i for i, kind in enumerate(kinds) if kind == _CONTROL and tokens[i] in _ENDS]
    return tuple(dict.fromkeys([*(i for i in listed if i is not None), *called]))


def _surround(
    backend: tokenizers.Tokenizer, tokens: list[str], bos: int | None, eos: int | None
) -> None:
    """Put BOS before and EOS after a prompt, each if it is given."""
    before = [] if bos is None else [tokens[bos]]
    after = [] if eos is None else [tokens[eos]]
    if before or after:
        backend.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            special_tokens=[(tokens[i], i) for i in {bos, eos} if i is not None],
        )
