"""Text to token ids and back, with special tokens and chat templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import tokenizers

from forerun.errors import InvalidTemplate, InvalidTokenizer
from forerun.models.text.chat_template import ChatTemplate, Messages, template_text
from forerun.models.text.token_bytes import Spelling, token_bytes

# The files that Hugging Face's loaders read a tokenizer from.
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
_PADDING: Final = re.compile(r"\[PAD\d+\]|[<\[]\|?(?:unused|dummy)_?\d+\|?[>\]]")


@dataclass(frozen=True)
class TokenizerTraits:
    """What the files say about a vocabulary besides its pieces."""

    spelling: Spelling
    strips_space: bool = False  # the first token begins with a space that is not the text's
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    special_ids: frozenset[int] = frozenset()  # dropped from text: <s>, <|im_end|> …
    added_ids: frozenset[int] = frozenset()  # written as plain text in the vocabulary
    unused_ids: frozenset[int] = frozenset()  # padding, as the files declare it
    chat_template: str | None = None
    template_variables: dict[str, str] = field(default_factory=dict)  # bos_token, eos_token …


class Tokenizer:
    """One vocabulary. Build it with `load_tokenizer`."""

    def __init__(self, backend: tokenizers.Tokenizer, traits: TokenizerTraits) -> None:
        self._backend = backend
        self._traits = traits
        self._tokens = _tokens_by_id(backend)
        self._bytes: dict[int, bytes] = {}
        self.vocab_size: Final = len(self._tokens)
        self.bos_id: Final = traits.bos_id
        self.eos_ids: Final = traits.eos_ids
        self.special_ids: Final = traits.special_ids
        self.strips_space: Final = traits.strips_space
        self.chat_template: Final = traits.chat_template
        self.has_chat_template: Final = traits.chat_template is not None

    def encode(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Return the ids of `text`.

        `add_special` adds what the model expects around a prompt (BOS for Llama). Special tokens
        spelled out in `text` become those tokens, as in Hugging Face; with `parse_special=False`
        they are ordinary text.
        """
        is_plain = parse_special or not self._may_spell_special(text)
        backend = self._backend if is_plain else self._literal_backend
        try:
            # Unlike `encode`, this lets other threads run: a text of megabytes takes seconds.
            (found,) = backend.encode_batch_fast([text], add_special_tokens=add_special)
        except (TypeError, UnicodeEncodeError):
            raise InvalidTokenizer("text holds a lone surrogate; give valid Unicode.") from None
        return found.ids

    def decode(
        self, ids: Iterable[int], skip_special: bool = True, continuing: bool = False
    ) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD.

        `continuing` says that the text follows other text, so that a leading space is kept.
        """
        joined = b"".join(self.token_bytes(token, skip_special) for token in ids)
        if self._traits.strips_space and not continuing:
            joined = joined.removeprefix(b" ")
        return joined.decode("utf-8", "replace")

    @property
    def settings(self) -> dict[str, str | None]:
        """The chat template and its variables, as in tokenizer_config.json."""
        traits = self._traits
        return {**traits.template_variables, "chat_template": traits.chat_template}

    def files(self) -> dict[str, bytes]:
        """Return the contents of `TOKENIZER_FILES` for this tokenizer, by name."""
        traits = self._traits
        ends = {"bos_token_id": traits.bos_id, "eos_token_id": list(traits.eos_ids)}
        told = [json.dumps(each, indent=2) for each in (self.settings, ends)]
        texts = (self._backend.to_str(), *told)
        return {name: text.encode() for name, text in zip(TOKENIZER_FILES, texts, strict=True)}

    def token(self, token_id: int) -> str:
        """Return the token as the vocabulary spells it ("Ġthe", "▁the", "<|im_end|>")."""
        if not 0 <= token_id < len(self._tokens):
            raise InvalidTokenizer(
                f"token id {token_id} is outside the vocabulary; use 0 … {len(self._tokens) - 1}."
            )
        return self._tokens[token_id]

    def is_padding(self, token_id: int) -> bool:
        """Return whether the id only fills up the vocabulary, so that no text encodes to it."""
        token = self.token(token_id)
        is_named = bool(token) and not _PADDING.fullmatch(token)
        return token_id in self._traits.unused_ids or not is_named

    def token_bytes(self, token_id: int, skip_special: bool = True) -> bytes:
        """Return the bytes that a token adds to the text; none for a special one that is skipped.

        A model's head may be padded beyond the vocabulary: such ids have no bytes.
        """
        if (skip_special and token_id in self.special_ids) or token_id >= self.vocab_size:
            return b""
        if token_id not in self._bytes:
            token, is_added = self.token(token_id), token_id in self._traits.added_ids
            spelled = token.encode() if is_added else token_bytes(token, self._traits.spelling)
            self._bytes[token_id] = spelled
        return self._bytes[token_id]

    def apply_chat_template(
        self, /, messages: Messages, add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """Return the prompt text for a conversation, by the model's own template.

        Encode it with `add_special=False`: the template writes BOS itself.
        """
        given = {**self._traits.template_variables, **variables}
        return self._template.render(messages, add_generation_prompt, **given)

    def encode_chat(
        self, /, messages: Messages, add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Return the ids of the prompt for a conversation."""
        text = self.apply_chat_template(messages, add_generation_prompt, **variables)
        return self.encode(text, add_special=False)

    @property
    def template_reads(self) -> frozenset[str]:
        """The variables that the chat template reads."""
        return self._template.reads

    def with_chat_template(self, source: str) -> Tokenizer:
        """Return the same vocabulary with another template, given as its text or a file's path."""
        traits = replace(self._traits, chat_template=template_text(source))
        other = Tokenizer(self._backend, traits)
        _ = other._template  # raises now if it does not parse
        return other

    def save(self, path: Path) -> None:
        """Write the vocabulary as a tokenizer.json."""
        self._backend.save(str(path))

    @cached_property
    def _template(self) -> ChatTemplate:
        if self._traits.chat_template is None:
            raise InvalidTemplate(
                "this model has no chat template; give one with --chat-template, "
                "or send a plain prompt."
            )
        return ChatTemplate(self._traits.chat_template)

    def _may_spell_special(self, text: str) -> bool:
        added = self._added_tokens
        return any(each.normalized or each.content in text for each in added if each.special)

    @cached_property
    def _added_tokens(self) -> list[tokenizers.AddedToken]:
        return list(self._backend.get_added_tokens_decoder().values())

    @cached_property
    def _literal_backend(self) -> tokenizers.Tokenizer:
        """A copy that reads special tokens in text as ordinary characters. Making it takes as long
        as making the tokenizer itself, so it is not used for texts without special tokens."""
        twin = tokenizers.Tokenizer.from_str(self._backend.to_str())
        twin.encode_special_tokens = True
        return twin


def _tokens_by_id(backend: tokenizers.Tokenizer) -> list[str]:
    vocab = backend.get_vocab(with_added_tokens=True)
    size = max(vocab.values(), default=-1) + 1
    tokens = [""] * size
    for token, token_id in vocab.items():
        tokens[token_id] = token
    return tokens
