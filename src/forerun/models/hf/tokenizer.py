"""A tokenizer from a Hugging Face directory: tokenizer.json and the settings beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import tokenizers

from forerun.errors import InvalidTokenizer
from forerun.files import MAX_JSON_BYTES, MAX_TEXT_BYTES, read_bytes, read_text
from forerun.models.hf.json_file import read_json_if_there
from forerun.models.text.token_bytes import Spelling
from forerun.models.text.tokenizer import Tokenizer, TokenizerTraits

_TOKEN_NAMES: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


def tokenizer_from_directory(
    folder: Path, config: dict[str, Any], generation_config: dict[str, Any]
) -> Tokenizer:
    """Build a directory's tokenizer; either config may name the ids that end a text."""
    backend, description = _read_backend(folder / "tokenizer.json")
    settings = read_json_if_there(folder / "tokenizer_config.json")
    added = description.get("added_tokens") or []
    named = _named_tokens(folder, settings)
    bos, eos = named.get("bos_token"), named.get("eos_token")
    spelling, strips_space = _read_decoder(description, folder)
    return Tokenizer(
        backend,
        TokenizerTraits(
            spelling=spelling,
            strips_space=strips_space,
            bos_id=_bos_id(backend, bos, config),
            eos_ids=_eos_ids(backend, eos, generation_config, config),
            special_ids=frozenset(token["id"] for token in added if token["special"]),
            added_ids=frozenset(token["id"] for token in added),
            chat_template=_chat_template(folder, settings),
            template_variables={"bos_token": "", "eos_token": "", **named},
        ),
    )


def _read_backend(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    try:
        text = read_text(path, MAX_JSON_BYTES)
        backend = tokenizers.Tokenizer.from_str(text)
    except FileNotFoundError:
        raise InvalidTokenizer(
            f"{path} is missing; save the tokenizer in the fast format (tokenizer.json)."
        ) from None
    except OSError as error:
        raise InvalidTokenizer(f"{path} cannot be read ({error.strerror}); check it.") from None
    except Exception as error:
        # The library raises bare exceptions for anything it cannot read.
        raise InvalidTokenizer(f"{path} cannot be read ({error}); download it again.") from None
    backend.no_truncation()
    backend.no_padding()
    description: dict[str, Any] = json.loads(text)
    return backend, description


def _read_decoder(description: dict[str, Any], folder: Path) -> tuple[Spelling, bool]:
    """Return how tokens spell bytes, and whether decoding drops the first space."""
    decoder = description.get("decoder") or {}
    steps = decoder.get("decoders") or [decoder]
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return Spelling.BYTE_LEVEL, False
    if kinds & {"ByteFallback", "Metaspace"}:
        prefixed = [step for step in steps if step.get("prepend_scheme", "never") != "never"]
        return Spelling.SENTENCEPIECE, bool(prefixed) or "Strip" in kinds
    raise InvalidTokenizer(
        f"{folder / 'tokenizer.json'} decodes by {sorted(map(str, kinds))}; "
        "use a byte-level or SentencePiece tokenizer."
    )


def _named_tokens(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    """Return special tokens by role: from the settings, else from special_tokens_map.json.

    In both, a token is a string or an object with `content`."""
    given = {**read_json_if_there(folder / "special_tokens_map.json"), **settings}
    values = {name: given.get(name) for name in _TOKEN_NAMES}
    texts = {n: v.get("content") if isinstance(v, dict) else v for n, v in values.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _bos_id(backend: tokenizers.Tokenizer, bos: str | None, config: dict[str, Any]) -> int | None:
    if bos is not None:
        return backend.token_to_id(bos)
    listed = _id_list(config.get("bos_token_id"))
    return listed[0] if listed else None


def _eos_ids(
    backend: tokenizers.Tokenizer, eos: str | None, *configs: dict[str, Any]
) -> tuple[int, ...]:
    """Return the end ids of the first config that names any, else the tokenizer's own."""
    for config in configs:
        ids = _id_list(config.get("eos_token_id"))
        if ids:
            return tuple(ids)
    own = None if eos is None else backend.token_to_id(eos)
    return () if own is None else (own,)


def _id_list(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if type(item) is int]


def _read_template(file: Path) -> str:
    try:
        return read_bytes(file, MAX_TEXT_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise InvalidTokenizer(f"{file} cannot be read ({error.strerror}); check it.") from None


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Return the template: chat_template.jinja takes precedence over the settings; among named
    templates, "default" is used."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return _read_template(file)
    template = settings.get("chat_template")
    template = template or read_json_if_there(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):
        entries = [item for item in template if isinstance(item, dict)]
        defaults = [item.get("template") for item in entries if item.get("name") == "default"]
        template = defaults[0] if defaults else None
    return template if isinstance(template, str) else None
