"""Preempted, evicted, recomputed, beside any others, some of them cancelled: every request gets the
answer that it gets alone without speculation. A few here, thousands in `make soak`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from forerun.bench.prompts.named_prompts import named_prompts
from forerun.drafters import OWN, Budget
from forerun.engine import LLM
from forerun.engine.api.input_processor import InputProcessor
from forerun.engine.engine import Engine
from forerun.grammars import Grammars
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.speculation import Speculation
from tests.soak.bad_drafters import Garbage, throwing
from tests.soak.crowd import Alone, Tell, assert_equal_to_alone
from tests.soak.questions import Asked, Questions, in_a_batch

CANCEL_RATE = 0.2
NUM_PAGES = 14  # of 16 rows, for 8 requests that may need 10 pages each
CEILING = Budget(4, 2)


@pytest.fixture
def tell(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Tell:
    """Print progress to the terminal, but only in soak runs, which take minutes."""
    if request.node.get_closest_marker("soak") is None:
        return lambda _: None

    def write(text: str) -> None:
        with capsys.disabled():
            print(f"\n{request.node.name}: {text}", end="", flush=True)

    return write


@pytest.fixture(scope="module")
def alone(plain: LLM) -> Alone:
    return Alone(plain)


@pytest.fixture(scope="module")
def questions(plain: LLM) -> Questions:
    texts = [
        "the cat sat on the mat. the dog sat on the cat. the mat sat on the dog.",
        "the cat sat on the mat. a b c d e f g h i j k l m n o p q r s t u v w x y z",
        "abcabcabcabcabcabcabcabcabcabcabcabc",
        "once, upon a time.\nonce, upon a time.\nonce, upon",
    ]
    return Questions(
        texts=[plain.tokenizer.encode(text) for text in texts],
        max_prompt=45,
        max_tokens=110,
        stops=["ab", "e ", "the", "zq"],
        token_ids=range(30),
    )


@pytest.fixture
def crowded(tiny_path: Path, tiny_draft_path: Path, plain: LLM, backend: str) -> LLM:
    """An engine with six drafters, two of them models, and hardly any memory."""
    config = {
        "method": "hybrid",
        "methods": ["suffix", "prompt_lookup", "bigram", "random", "own_layers", "draft_model"],
        "model": str(tiny_draft_path), "num_layers": 2,
        "num_speculative_tokens": CEILING.depth, "num_branches": CEILING.num_branches,
    }  # fmt: skip
    page_bytes = 16 * plain.model.row_bytes // 3 * (3 + 2 + 1)  # layers: target, own, draft
    return LLM(
        tiny_path,
        speculative_config=config,
        max_model_len=160,
        kv_cache_memory=page_bytes * NUM_PAGES * (3 if backend == "slotted" else 1),
        kv_cache_backend=backend,
        kernels=plain.model.kernels,
    )


@pytest.fixture
def backend() -> str:
    return "paged"


def speculation_of(llm: LLM) -> Speculation:
    speculation = llm.engine.core.speculation
    assert speculation is not None
    return speculation


def by_rule(llm: LLM) -> LLM:
    """Make the engine always guess as deep as allowed, so that a run depends on its seed alone."""
    return with_speculation(llm, Speculation(speculation_of(llm).drafters, None, CEILING))


def with_speculation(llm: LLM, speculation: Speculation) -> LLM:
    llm.engine = Engine(replace(llm.engine.core, speculation=speculation))
    llm.input_processor = InputProcessor(llm.tokenizer, llm.engine.core, Grammars(llm.tokenizer))
    return llm


def drawn(questions: Questions, num: int, rng: Random, llm: LLM) -> list[Asked]:
    """Draw `num` requests for half as many questions, so that `Alone` answers half as often."""
    pool = [questions.draw(rng) for _ in range(1 + num // 2)]
    drafters = [name for name in speculation_of(llm).drafters.drafters if name not in OWN]
    return [in_a_batch(rng.choice(pool), rng, drafters, CANCEL_RATE) for _ in range(num)]


def sizes(few: int, many: int) -> list[Any]:
    return [few, pytest.param(many, marks=pytest.mark.soak)]


@pytest.mark.parametrize("num", sizes(60, 3500))
def test_in_a_crowded_pool(
    num: int, crowded: LLM, alone: Alone, questions: Questions, tell: Tell
) -> None:
    rng, llm = Random(num), by_rule(crowded)
    found = assert_equal_to_alone(llm, alone, drawn(questions, num, rng, llm), rng, tell)
    assert found["preemptions"] > 0
    assert found["evictions"] > 0
    assert found["requests"]["abort"] > 0
    assert {*found["drafters"], *OWN} == set(speculation_of(llm).drafters.drafters)


@pytest.mark.parametrize("num", sizes(12, 1000))
def test_when_the_controller_chooses(
    num: int, crowded: LLM, alone: Alone, questions: Questions, tell: Tell
) -> None:
    rng = Random(num)
    asked = drawn(questions, num, rng, crowded)
    found = assert_equal_to_alone(crowded, alone, asked, rng, tell)
    assert num < 100 or (found["preemptions"] > 0 and found["evictions"] > 0)


@pytest.mark.parametrize("backend", ["slotted"])
@pytest.mark.parametrize("num", sizes(10, 500))
def test_with_a_slot_for_each(
    num: int, crowded: LLM, alone: Alone, questions: Questions, tell: Tell
) -> None:
    rng, llm = Random(num), by_rule(crowded)
    assert_equal_to_alone(llm, alone, drawn(questions, num, rng, llm), rng, tell)


@pytest.mark.parametrize("num", sizes(20, 1000))
@pytest.mark.parametrize("is_adaptive", [False, True])
def test_with_drafters_that_throw_or_talk_nonsense(
    num: int,
    is_adaptive: bool,
    crowded: LLM,
    alone: Alone,
    questions: Questions,
    tell: Tell,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rng = Random(num)
    llm = with_bad_drafters(crowded, rng, is_adaptive)
    asked = drawn(questions, num, rng, llm)
    found = assert_equal_to_alone(llm, alone, asked, rng, tell)
    assert found["drafter_failures"] > 0
    assert 0 < len(caplog.records) <= len(speculation_of(llm).drafters.drafters)  # once per drafter


def with_bad_drafters(llm: LLM, rng: Random, is_adaptive: bool) -> LLM:
    speculation = speculation_of(llm)
    good, vocab_size = speculation.drafters.drafters, speculation.drafters.vocab_size
    bad: dict[str, Any] = {name: throwing(drafter, rng) for name, drafter in good.items()}
    bad["garbage"] = Garbage(vocab_size, rng, picks=False)
    bad["garbage offered"] = Garbage(vocab_size, rng, picks=True)
    controller = speculation.controller if is_adaptive else None
    return with_speculation(llm, Speculation(GuardedDrafters(bad, vocab_size), controller, CEILING))


@pytest.mark.soak
def test_on_smollm2(smollm2_path: Path, tell: Tell) -> None:
    plain = LLM(smollm2_path, max_model_len=512, speculative_config=None)
    config = {"method": "hybrid", "methods": ["suffix", "bigram", "own_layers"], "num_layers": 3}
    crowded = LLM(
        smollm2_path,
        max_model_len=12 * 16,
        speculative_config={**config, "num_speculative_tokens": 4, "num_branches": 2},
        kv_cache_memory=12 * 16 * plain.model.row_bytes * (30 + 3) // 30,  # layers: target, own
        kernels=plain.model.kernels,
    )
    rng, llm = Random(2), by_rule(crowded)
    texts = [plain.tokenizer.encode(prompt.text) for prompt in named_prompts(60)]
    system = plain.tokenizer.encode("You are a helpful assistant. Answer in one sentence. " * 4)
    questions = Questions(
        texts=[*texts, *(system + text for text in texts)],
        max_prompt=60,
        max_tokens=90,
        stops=["\n\n", " however", "?!", "the end"],
        token_ids=range(1000),
    )
    asked = drawn(questions, 200, rng, llm)
    found = assert_equal_to_alone(llm, Alone(plain), asked, rng, tell)
    assert found["preemptions"] > 0
    assert found["evictions"] > 0
