"""SmolLM2's tokenizer from its GGUF file, against llama.cpp's ids and the library's text."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from forerun.errors import InvalidTemplate, InvalidTokenizer
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.text.tokenizer import Tokenizer

GOLDEN = Path(__file__).parent / "golden" / "smollm2_tokens.json"


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(open_checkpoint(smollm2_path))


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(GOLDEN.read_text())["cases"]
    assert len(found) > 150
    return found


def test_ids_are_llama_cpps(smollm2: Tokenizer, cases: list[dict[str, Any]]) -> None:
    for case in cases:
        assert smollm2.encode(case["text"]) == case["special"], case["text"]
        assert smollm2.encode(case["text"], parse_special=False) == case["literal"], case["text"]


def test_a_text_without_special_tokens_makes_no_second_tokenizer(smollm2: Tokenizer) -> None:
    vars(smollm2).pop("_literal_backend", None)
    assert smollm2.encode("no <| im_end |> here", parse_special=False)
    assert "_literal_backend" not in vars(smollm2)
    smollm2.encode("one <|im_end|> here", parse_special=False)
    assert "_literal_backend" in vars(smollm2)


def test_a_long_text_does_not_stop_other_threads(smollm2: Tokenizer) -> None:
    """Encoding releases the GIL; otherwise the other thread would not run at all."""
    is_over, turns = threading.Event(), itertools.count()

    def beat() -> None:
        while not is_over.wait(0.001):
            next(turns)

    other = threading.Thread(target=beat)
    other.start()
    first = next(turns)
    smollm2.encode("Some words, and more of them. " * 20_000)
    num_turns = next(turns) - first
    is_over.set()
    other.join()
    assert num_turns > 5


def test_text_survives_the_round_trip(smollm2: Tokenizer, cases: list[dict[str, Any]]) -> None:
    for case in cases:
        assert smollm2.decode(case["special"], skip_special=False) == case["text"]


def test_decoding_is_the_librarys(smollm2: Tokenizer, tmp_path: Path) -> None:
    smollm2.save(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for start in range(0, smollm2.vocab_size - 7, 611):  # arbitrary ids: mostly broken UTF-8
        ids = list(range(start, start + 7))
        for skip in (True, False):
            ours = smollm2.decode(ids, skip_special=skip)
            assert ours == library.decode(ids, skip_special_tokens=skip)


def test_digits_stand_alone(smollm2: Tokenizer) -> None:
    assert [smollm2.token(i) for i in smollm2.encode("2026")] == ["2", "0", "2", "6"]


def test_special_ids(smollm2: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_ids) == (49152, 1, (2, 0))
    assert {0, 1, 2} <= smollm2.special_ids
    assert (smollm2.token(2), smollm2.token(0)) == ("<|im_end|>", "<|endoftext|>")
    assert smollm2.decode([2, 28]) == smollm2.decode([28])


def test_the_chat_template_is_the_models(smollm2: Tokenizer) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = smollm2.apply_chat_template(messages)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    ids = smollm2.encode_chat(messages)
    assert ids == smollm2.encode(text, add_special=False)
    assert ids.count(1) == 3
    assert not smollm2.apply_chat_template(messages, add_generation_prompt=False).endswith("tant\n")


def test_another_template_can_be_given(smollm2: Tokenizer) -> None:
    other = smollm2.with_chat_template("{{ bos_token }}{{ messages[0].content }}")
    assert other.apply_chat_template([{"role": "user", "content": "x"}]) == "<|im_start|>x"
    with pytest.raises(InvalidTemplate, match="does not parse at line 1"):
        smollm2.with_chat_template("{{")


def test_ids_of_a_padded_head_spell_nothing(smollm2: Tokenizer) -> None:
    """A model's vocabulary may be padded past the tokenizer's; such an id must not end a text."""
    assert smollm2.decode([49152, 10**9]) == ""


def test_ids_outside_the_vocabulary_are_refused(smollm2: Tokenizer) -> None:
    with pytest.raises(InvalidTokenizer, match="49151"):
        smollm2.decode([-1])
    with pytest.raises(InvalidTokenizer, match="49151"):
        smollm2.token(49152)


def test_a_lone_surrogate_is_a_sentence(smollm2: Tokenizer) -> None:
    with pytest.raises(InvalidTokenizer, match="surrogate"):
        smollm2.encode("\ud800")
