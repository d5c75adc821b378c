"""Parts of a training, each compared with the plainest way to compute the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.models_llama.tiny import FAMILIES, TinyCheckpoint

torch = pytest.importorskip("torch", reason="training needs the extra forerun[train]")

from forerun.training.attention import Grid, chain_attention, root_attention  # noqa: E402
from forerun.training.batches import Rows, text_batch  # noqa: E402
from forerun.training.learning.losses import compared, entropy  # noqa: E402
from forerun.training.learning.optimizer import Optimizer  # noqa: E402
from forerun.training.new_head import draft_vocabulary  # noqa: E402
from forerun.training.texts import Text  # noqa: E402
from forerun.training.torch_target import TorchTarget  # noqa: E402


@pytest.mark.parametrize("num", [0, 1, 3])
def test_attention_to_a_text_and_a_chain_is_one_softmax(num: int) -> None:
    generator = torch.Generator().manual_seed(num)
    given = [torch.randn(2, 3, 17, 8, generator=generator) for _ in range(4 + 2 * num)]
    *given, grad = given
    q, k, v, *rest = (each.double().requires_grad_() for each in given)
    seen = torch.ones(17, 17, dtype=torch.bool).tril()
    scores = [(q @ k.transpose(2, 3)).masked_fill(~seen, -math.inf)]
    scores += [(q * key).sum(-1, keepdim=True) for key in rest[::2]]
    shares = (torch.cat(scores, -1) / math.sqrt(8)).softmax(-1)
    expected = shares[..., :17] @ v
    for idx, value in enumerate(rest[1::2]):
        expected = expected + shares[..., 17 + idx, None] * value
    due = torch.autograd.grad(expected, [q, k, v, *rest], grad.double())
    q, k, v, *rest = (each.requires_grad_() for each in given)
    found = chain_attention(q, k, v, list(zip(rest[::2], rest[1::2], strict=True)))
    assert torch.allclose(found.double(), expected, atol=1e-5)
    for ours, theirs in zip(torch.autograd.grad(found, [q, k, v, *rest], grad), due, strict=True):
        assert torch.allclose(ours.double(), theirs, atol=1e-5)


def test_attention_of_some_roots_is_that_of_all() -> None:
    """Other rows get no gradient, so the gradients of keys and values are the same too."""
    generator = torch.Generator().manual_seed(5)
    roots = torch.randperm(2 * 17, generator=generator)[:20]
    grid = Grid(2, 17, roots)
    k, v = (torch.randn(2, 3, 17, 8, generator=generator).requires_grad_() for _ in range(2))
    rows = [torch.randn(20, 3, 8, generator=generator).requires_grad_() for _ in range(5)]
    grad = torch.randn(20, 3, 8, generator=generator)
    q, *rest = rows
    chain = list(zip(rest[::2], rest[1::2], strict=True))
    wide = [(grid.spread(key), grid.spread(value)) for key, value in chain]
    expected = grid.picked(chain_attention(grid.spread(q), k, v, wide))
    due = torch.autograd.grad(expected, [k, v, *rows], grad)
    found = root_attention(q, k, v, chain, grid)
    assert torch.allclose(found, expected, atol=1e-5)
    for ours, theirs in zip(torch.autograd.grad(found, [k, v, *rows], grad), due, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_laws_are_compared_row_by_row() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(6, 11, generator=generator)
    probs = torch.randn(4, 11, generator=generator).softmax(-1)
    at = torch.tensor([0, 3, 3, 1, 2, 0])
    plain = torch.nn.functional.kl_div(logits.log_softmax(-1), probs[at], reduction="none").sum(-1)
    crossed, alpha, lse = compared(logits, probs, at)
    assert torch.allclose(crossed - entropy(probs)[at], plain, atol=1e-5)
    laws = zip(probs[at].tolist(), logits.softmax(-1).tolist(), strict=True)
    shared = [sum(map(min, p, q)) for p, q in laws]
    assert torch.allclose(alpha, torch.tensor(shared), atol=1e-5)
    assert torch.allclose(lse, logits.exp().sum(-1).log(), atol=1e-5)


TEXTS = [Text([*range(3, 12)], 4), Text([*range(20, 33)], 1), Text([*range(40, 46)], 2)]


@pytest.fixture(scope="module")
def target() -> TorchTarget:
    return TorchTarget(TinyCheckpoint(FAMILIES["smollm2"]), "cpu", torch.float32)


def test_rows_that_count_guess_tokens_of_the_answer(target: TorchTarget) -> None:
    """Token t of these texts is followed by t + 1, so it is plain what each place guesses."""
    batch = text_batch(target, (0, 2), TEXTS, 3)
    width = batch.tokens.shape[1]
    found = set()
    for place in range(3):
        rows = zip(batch.roots.tolist(), batch.expected[place], batch.weights[place], strict=True)
        for root, expected, weight in rows:
            text, position = divmod(root, width - 1)
            assert int(expected) == text * width + min(position + 1 + place, width - 1)
            if weight:
                found.add((text, position, place))
    due = {
        (idx, root, place)
        for idx, text in enumerate(TEXTS)
        for place in range(3)
        for root in range(text.answer - 1, len(text.tokens) - 2 - place)
    }
    assert found == due
    states, h = target.states(batch.tokens, (0, 2))
    assert torch.equal(batch.features, torch.cat((states[0], states[2]), -1))
    assert torch.equal(batch.h, h)


def test_packed_rows_are_what_the_target_computes_over_each_text(target: TorchTarget) -> None:
    rows = Rows(target, (0, 3), row_len=10, max_bytes=1e9)
    rows.add(TEXTS[:1])
    assert rows.num_tokens == 0  # it waits for more
    rows.add(TEXTS[1:])
    whole = np.concatenate([text.tokens for text in TEXTS])
    assert rows.num_tokens == 20
    batch = rows.batch(num_rows=4, num_places=3, chooser=np.random.default_rng(0))
    for text in TEXTS:  # each by itself, whatever stands before it in its row
        states, h = target.states(torch.tensor([text.tokens]), (0, 3))
        features = torch.cat((states[0], states[3]), -1)
        for idx, token in enumerate(text.tokens):
            at = batch.tokens == token
            assert torch.allclose(batch.features[at], features[:, idx], atol=1e-5)
            assert torch.allclose(batch.h[at], h[:, idx], atol=1e-5)
    flat, num_counted = batch.tokens.flatten(), 0
    for place in range(3):
        for root, expected, weight in zip(
            batch.roots, batch.expected[place], batch.weights[place], strict=True
        ):
            if weight:  # within one text, the place is so many tokens behind the known one
                row, position = divmod(int(root), 9)
                known = int(batch.tokens[row, position]) + 1
                assert int(flat[expected]) == known + place
                assert known in whole
                num_counted += 1
    assert num_counted > 20


def test_the_oldest_rows_leave_where_there_is_no_room(target: TorchTarget) -> None:
    rows = Rows(target, (0,), row_len=9, max_bytes=9 * 2 * 48 * 4)
    for first in (0, 20, 40):
        rows.add([Text([*range(first, first + 9)], 1)])
    seen = {
        int(batch.tokens[0, 0])
        for idx in range(40)
        for batch in [rows.batch(1, 2, np.random.default_rng(idx))]
    }
    assert seen == {20, 40}


def test_a_draft_vocabulary_has_the_ids_that_answers_use() -> None:
    texts = [Text([9, 9, 9, 7, 7, 8], 3), Text([1, 8, 8, 8], 1)]
    assert draft_vocabulary(texts, 3, needed=[5]) == [5, 7, 8]
    assert draft_vocabulary(texts, 6, needed=[5]) == [0, 1, 2, 5, 7, 8]


def test_a_step_moves_a_matrix_in_all_directions_alike() -> None:
    """Its momentum has singular values from 1 to 100; a step has about one for all."""
    generator = torch.Generator().manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(8, 12, generator=generator), full_matrices=False)
    weights = {"fc.weight": torch.zeros(8, 12), "norm.weight": torch.zeros(5)}
    for weight in weights.values():
        weight.requires_grad_()
    optimizer = Optimizer(weights, torch.device("cpu"))
    optimizer.set_rate(0.1)
    weights["fc.weight"].grad = left @ torch.diag(torch.logspace(0, 2, 8)) @ right
    weights["norm.weight"].grad = torch.ones(5)
    optimizer.step()
    moved = torch.linalg.svdvals(weights["fc.weight"].detach())
    assert moved.max() / moved.min() < 3
    assert torch.allclose(weights["norm.weight"], torch.full((5,), -0.1), atol=1e-3)  # AdamW's
