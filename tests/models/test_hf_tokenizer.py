"""Tokenizers from Hugging Face directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.errors import InvalidTemplate, InvalidTokenizer
from forerun.models.gguf.tokenizer import tokenizer_from_gguf
from forerun.models.hf.tokenizer import tokenizer_from_directory
from forerun.models.text.compatibility import check_compatible
from tests.models.small_vocabularies import byte_level_metadata, sentencepiece_metadata

MESSAGES = [{"role": "user", "content": "abc"}]


def _folder(tmp_path: Path, metadata: dict[str, Any], **settings: Any) -> Path:
    tokenizer_from_gguf(metadata).save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    return tmp_path


@pytest.mark.parametrize("metadata", [byte_level_metadata(), sentencepiece_metadata()])
def test_the_same_vocabulary_from_either_source(tmp_path: Path, metadata: dict[str, Any]) -> None:
    eos = metadata["tokenizer.ggml.eos_token_id"]
    ours = tokenizer_from_gguf(metadata)
    theirs = tokenizer_from_directory(_folder(tmp_path, metadata), {"eos_token_id": eos}, {})
    for text in ("abc é\n日本 <|end|></s>", "  ab", ""):
        assert theirs.encode(text) == ours.encode(text)
        assert theirs.decode(ours.encode(text)) == ours.decode(ours.encode(text))
    check_compatible(ours, theirs)


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        ({"eos_token_id": 5}, {}, (5,)),
        ({"eos_token_id": 5}, {"eos_token_id": [258, 259]}, (258, 259)),
        ({"eos_token_id": [6, 7]}, {}, (6, 7)),
        ({}, {}, (259,)),
    ],
)
def test_where_end_ids_come_from(
    tmp_path: Path, config: dict[str, Any], generation: dict[str, Any], expected: tuple[int, ...]
) -> None:
    folder = _folder(tmp_path, byte_level_metadata(), eos_token={"content": "<|turn|>"})
    assert tokenizer_from_directory(folder, config, generation).eos_ids == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages[0].content }}!", "abc!"),
        ([{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}], "yes"),
    ],
)
def test_templates_in_the_settings(tmp_path: Path, template: Any, expected: str) -> None:
    folder = _folder(tmp_path, byte_level_metadata(), chat_template=template)
    tokenizer = tokenizer_from_directory(folder, {}, {})
    assert tokenizer.apply_chat_template(MESSAGES) == expected


def test_a_template_file_wins(tmp_path: Path) -> None:
    folder = _folder(tmp_path, byte_level_metadata(), chat_template="settings")
    (folder / "chat_template.jinja").write_text("file {{ eos_token }}")
    tokenizer = tokenizer_from_directory(folder, {}, {})
    assert tokenizer.apply_chat_template(MESSAGES) == "file "


def test_tokens_that_only_the_special_tokens_map_names(tmp_path: Path) -> None:
    template = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token is defined }}"
    folder = _folder(tmp_path, byte_level_metadata(), chat_template=template, pad_token="<|turn|>")
    named = {"bos_token": "<|turn|>", "eos_token": {"content": "<|end|>"}, "pad_token": "abc"}
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    tokenizer = tokenizer_from_directory(folder, {}, {})
    assert tokenizer.apply_chat_template(MESSAGES) == "<|turn|>|<|end|>|<|turn|>|False"
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (259, (258,))


def test_no_template_says_what_to_do(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_directory(_folder(tmp_path, byte_level_metadata()), {}, {})
    assert not tokenizer.has_chat_template
    with pytest.raises(InvalidTemplate, match="--chat-template"):
        tokenizer.apply_chat_template(MESSAGES)


def test_missing_and_damaged_files_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(InvalidTokenizer, match="is missing"):
        tokenizer_from_directory(tmp_path, {}, {})
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(InvalidTokenizer, match="cannot be read"):
        tokenizer_from_directory(tmp_path, {}, {})


def test_other_kinds_of_tokenizer_are_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path, byte_level_metadata())
    description = json.loads((folder / "tokenizer.json").read_text())
    description["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (folder / "tokenizer.json").write_text(json.dumps(description))
    with pytest.raises(InvalidTokenizer, match="WordPiece"):
        tokenizer_from_directory(folder, {}, {})
