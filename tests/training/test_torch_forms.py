"""The torch forms of targets and heads, against the kernels that serve them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.drafters.heads import (
    BlockHead,
    BlockwiseHeads,
    Eagle3Head,
    HeadFolder,
    MedusaHeads,
    MtpHead,
)
from forerun.drafters.heads.fed_back_head import FedBackHead
from forerun.drafters.heads.folder import D2T
from forerun.kernels import Plan, PlanRow, ReferenceKernels
from forerun.models.llama import LlamaModel, Taps
from forerun.types import Span, Tree
from tests.drafters.heads.random_heads import (
    CONFIGS,
    block_config,
    write_head,
)
from tests.models_llama.naive import naive_hidden_states, naive_logits
from tests.models_llama.runs import all_wanted
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint

torch = pytest.importorskip("torch", reason="training needs the extra forerun[train]")

from forerun.training.new_head import first_weights  # noqa: E402
from forerun.training.torch_heads import torch_head  # noqa: E402
from forerun.training.torch_target import TorchTarget  # noqa: E402

TOKENS = [int(t) for t in np.random.default_rng(2).integers(0, 96, 24)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_target_says_what_the_kernels_say(family: str) -> None:
    checkpoint = TinyCheckpoint(FAMILIES[family])
    target = TorchTarget(checkpoint, "cpu", torch.float32)
    states, h = target.states(torch.tensor([TOKENS, TOKENS[::-1]]), (0, 1, 3))
    expected = naive_hidden_states(checkpoint, TOKENS)
    for layer in (0, 1, 3):
        np.testing.assert_allclose(states[layer][0], expected[layer], rtol=1e-3, atol=1e-4)
    logits = target.logits(h)[0]
    np.testing.assert_allclose(logits, naive_logits(checkpoint, TOKENS), rtol=1e-3, atol=1e-3)
    model = LlamaModel.load(checkpoint, ReferenceKernels())
    cache = model.new_cache(8, 4)
    table = cache.new_table()
    span = all_wanted(table.reserve(len(TOKENS)), TOKENS)
    served = model.forward(Plan.build([(span, table)]), cache)
    np.testing.assert_allclose(logits, served, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", ["smollm2", "mistral", "qwen3"])
def test_generated_tokens_are_those_of_the_whole_text(family: str) -> None:
    """Prompts of different lengths in one batch, greedily: each token is the best after all
    before it, so keys were kept and padding was never seen."""
    checkpoint = TinyCheckpoint(FAMILIES[family])
    target = TorchTarget(checkpoint, "cpu", torch.float32)
    prompts = [TOKENS[:9], TOKENS[3:5], TOKENS[10:11]]
    answers = target.generate(prompts, 8, torch.zeros(3), [], torch.Generator().manual_seed(0))
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer) == 8
        best = naive_logits(checkpoint, [*prompt, *answer]).argmax(-1)
        assert answer == best[len(prompt) - 1 : -1].tolist()
    stopped = target.generate(
        prompts, 8, torch.zeros(3), [answers[0][2]], torch.Generator().manual_seed(0)
    )
    assert stopped[0] == answers[0][: answers[0].index(answers[0][2]) + 1]


def test_drawn_tokens_follow_the_law() -> None:
    """20,000 first tokens at temperature 1; a right law differs by less than 0.03 in total."""
    checkpoint = TinyCheckpoint(FAMILIES["smollm2"])
    target = TorchTarget(checkpoint, "cpu", torch.float32)
    num = 20_000
    generator = torch.Generator().manual_seed(1)
    answers = target.generate([TOKENS[:1]] * num, 1, torch.ones(num), [], generator)
    counts = np.bincount([answer[0] for answer in answers], minlength=97) / num
    logits = naive_logits(checkpoint, TOKENS[:1])[0]
    probs = np.exp(logits - logits.max())
    assert np.abs(counts - probs / probs.sum()).sum() / 2 < 0.03


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("eagle3", {}),
        ("eagle3", {"norm_output": True}),
        ("eagle3", {"norm_before_residual": True}),
        ("mtp", {}),
        ("mtp", {"draft_vocab_size": 40}),
    ],
)
def test_a_head_that_is_fed_back_says_what_the_drafter_says(
    tmp_path: Path, kind: str, flags: dict[str, Any]
) -> None:
    """Both give the same logits at each place, from a text's features and then their own outputs:
    the served head root by root, the trained one all at once."""
    checkpoint = TinyCheckpoint(FAMILIES["smollm2"])
    model = LlamaModel.load(checkpoint, ReferenceKernels())
    config = CONFIGS[kind](checkpoint.config, **flags)
    folder = HeadFolder(write_head(tmp_path / "head", config), kind)
    weights = {name: folder.float32(name) for name in folder.names() if name != D2T}
    target = TorchTarget(checkpoint, "cpu", torch.float32)
    states, _ = target.states(torch.tensor([TOKENS]), config.layers)
    features = [states[layer][:, :-1] for layer in config.layers]
    trained = torch_head(config, weights, target)
    with torch.no_grad(), trained.cast():
        outputs = trained.outputs(features, torch.tensor([TOKENS]), 3)
        laws = [trained.logits(output[0], place, None) for place, output in enumerate(outputs)]
    head = (
        MtpHead.load(folder, ReferenceKernels(), model)
        if kind == "mtp"
        else Eagle3Head.load(folder, ReferenceKernels(), model.embedding)
    )
    whole = np.concatenate([x[0].numpy() for x in features], axis=1)
    for root in (0, 4, 17):
        served = served_chain(head, whole[: root + 1], TOKENS[1:], num_places=3)
        for place, logits in enumerate(served):
            found = laws[place][root].numpy()
            np.testing.assert_allclose(found, logits, rtol=1e-3, atol=1e-3)


def served_chain(
    head: FedBackHead, features: np.ndarray, tokens: list[int], num_places: int
) -> list[np.ndarray]:
    """The head after a text of as many tokens as features, then over `tokens` as guesses."""
    cache = head.new_cache(16, 4)
    table, num = cache.new_table(), len(features)
    table.reserve(num)
    span = Span.prompt_chunk(0, tokens[:num], is_last=True)
    logits, fed = head.known(Plan.build([(span, table)]), cache, features)
    found = [logits[0]]
    for place in range(1, num_places):
        table.reserve(1)
        guesses = tuple(tokens[num : num + place])
        span = Span(num, guesses, Tree.chain(place), (place - 1,))
        plan = Plan((PlanRow.of(span, table, place - 1),))
        logits, fed = head.guessed(plan, cache, fed)
        found.append(logits[0])
    return found


@pytest.mark.parametrize(
    ("kind", "heads"), [("medusa", MedusaHeads), ("blockwise", BlockwiseHeads)]
)
def test_heads_on_the_last_hidden_state_say_what_the_drafter_says(
    tmp_path: Path, kind: str, heads: Any
) -> None:
    checkpoint = TinyCheckpoint(FAMILIES["smollm2"])
    config = CONFIGS[kind](checkpoint.config)
    folder = HeadFolder(write_head(tmp_path / "head", config), kind)
    weights = {name: folder.float32(name) for name in folder.names() if name != D2T}
    model = LlamaModel.load(checkpoint, ReferenceKernels())
    cache, taps = model.new_cache(8, 4), Taps(config.layers)
    table = cache.new_table()
    span = all_wanted(table.reserve(len(TOKENS)), TOKENS)
    model.forward(Plan.build([(span, table)]), cache, taps)
    hidden = taps.rows[3]
    target = TorchTarget(checkpoint, "cpu", torch.float32)
    trained = torch_head(config, weights, target)
    with torch.no_grad(), trained.cast():
        outputs = trained.outputs([torch.tensor(hidden)[None]], None, 4)
        laws = [trained.logits(output[0], place, None) for place, output in enumerate(outputs)]
    served = heads(folder, ReferenceKernels()).guesses(hidden)
    for place in range(4):
        np.testing.assert_allclose(laws[place], served[:, place], rtol=1e-3, atol=1e-3)


def test_block_says_at_every_place_what_the_drafter_says(tmp_path: Path) -> None:
    """All roots at once, compared with one root and its places in one pass, before and after the
    Markov step."""
    checkpoint = TinyCheckpoint(FAMILIES["smollm2"])
    model = LlamaModel.load(checkpoint, ReferenceKernels())
    config = block_config(checkpoint.config)
    folder = HeadFolder(write_head(tmp_path / "head", config), "block")
    weights = {name: folder.float32(name) for name in folder.names() if name != D2T}
    target = TorchTarget(checkpoint, "cpu", torch.float32)
    states, _ = target.states(torch.tensor([TOKENS]), config.layers)
    features = [states[layer][:, :-1] for layer in config.layers]
    whole = np.concatenate([x[0].numpy() for x in features], axis=1)
    head = BlockHead.load(folder, ReferenceKernels(), model.embedding)
    trained = torch_head(config, weights, target)
    for root in (0, 4, 17):
        num = root + 1
        cache = head.new_cache(16, 4)
        table = cache.new_table()
        table.reserve(num + 3)
        tokens = (*TOKENS[1 : num + 1], *(TOKENS[num],) * 3)
        span = Span(0, tokens, Tree.chain(num + 3), tuple(range(root, num + 3)))
        rows = np.concatenate((whole[:num], *(whole[root : root + 1],) * 3))
        places = np.array([0] * num + [1, 2, 3])
        logits, gates = head.run(Plan.build([(span, table)]), cache, rows, places)
        with torch.no_grad(), trained.cast():
            outputs = trained.outputs(features, torch.tensor([TOKENS]), 4)
            for place, output in enumerate(outputs):
                draft_id = torch.tensor([7 + place])
                found = trained.logits(output[0, root : root + 1], place, draft_id)[0]
                guess = int(head.tokens[7 + place])
                row = head.after(guess, logits[place], gates[place]) if place else logits[0]
                np.testing.assert_allclose(found, row, rtol=1e-3, atol=1e-3)
                plain = trained.logits(output[0, root : root + 1], place, torch.tensor([95]))[0]
                np.testing.assert_allclose(plain, logits[place], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", ["smollm2", "qwen3"])
def test_look_ahead_tokens_say_what_the_drafter_says(tmp_path: Path, family: str) -> None:
    """All roots at once, compared with one pass over a text and the look-ahead tokens after it."""
    checkpoint = TinyCheckpoint(FAMILIES[family])
    model = LlamaModel.load(checkpoint, ReferenceKernels())
    c = checkpoint.config
    heads: dict[str, Any] = {
        "num_heads": c.num_heads,
        "num_kv_heads": c.num_kv_heads,
        "head_dim": c.head_dim,
    }
    config = CONFIGS["pass"](c, **heads)
    folder = HeadFolder(write_head(tmp_path / "head", config), "pass")
    vectors = folder.float32("look_ahead.weight")
    target = TorchTarget(checkpoint, "cpu", torch.float32)
    trained = torch_head(config, {"look_ahead.weight": vectors}, target)
    with torch.no_grad(), trained.cast():
        outputs = trained.outputs([], torch.tensor([TOKENS]), 4)
        laws = [trained.logits(output[0], place, None) for place, output in enumerate(outputs)]
    for root in (0, 4, 17):
        cache = model.new_cache(16, 4)
        table, known = cache.new_table(), tuple(TOKENS[: root + 2])
        table.reserve(len(known) + 3)
        wanted = tuple(range(len(known) - 1, len(known) + 3))
        span = Span(0, (*known, 0, 0, 0), Tree.chain(len(known) + 3), wanted)
        added = np.concatenate((np.zeros((len(known), c.hidden_size), np.float32), vectors))
        served = model.forward(Plan.build([(span, table)]), cache, added=added)
        for place in range(4):
            np.testing.assert_allclose(laws[place][root], served[place], rtol=1e-3, atol=1e-3)


def test_look_ahead_tokens_start_as_the_mean_of_all_tokens() -> None:
    checkpoint = TinyCheckpoint(FAMILIES["smollm2"])
    target = TorchTarget(checkpoint, "cpu", torch.float32)
    config = CONFIGS["pass"](checkpoint.config)
    vectors = first_weights(config, target, torch.arange(9), seed=0)["look_ahead.weight"]
    table = target.embedding.numpy()
    expected = np.tile(table.mean(0), (config.num_guesses - 1, 1))
    np.testing.assert_allclose(table[0] + vectors, expected, atol=1e-6)
