"""Every drafter passes this suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest

from forerun.drafters import (
    Budget,
    CachedDrafter,
    Drafter,
    DraftModel,
    GivenPrediction,
    Hybrid,
    Merge,
    NgramTables,
    Phrases,
    PromptLookup,
    RandomTokens,
    RequestView,
    SuffixLookup,
    TappedDrafter,
)
from forerun.drafters.heads import HEAD_KINDS, HeadFolder, build_head
from forerun.drafters.heads.kinds.block_head import BlockHead
from forerun.kernels import Plan, ReferenceKernels
from forerun.models.llama import LlamaModel, Taps
from forerun.sampling import Noise, Probs
from forerun.types import Acceptance, Origin, Proposal, SamplingParams, Span, Verdict
from forerun.verify import coupled, rejection
from tests.contracts.kernel_sets import KERNEL_SETS
from tests.drafters.heads.random_heads import CONFIGS, write_head
from tests.drafters.phrases.books import OWNER, book_of
from tests.enumeration import LazyNoise, Staged
from tests.models_llama.tiny import TinyCheckpoint, tiny_config
from tests.verify.test_law_rejection import worst_error
from tests.worlds import TableModel

GREEDY = SamplingParams(temperature=0)
COUPLED = SamplingParams(temperature=0.8, seed=1)
REJECTION = SamplingParams(temperature=0.8, acceptance=Acceptance.REJECTION)


@dataclass
class View:
    """A request as drafters see it."""

    prompt: tuple[int, ...]
    id: int = 0
    output: tuple[int, ...] = ()
    params: SamplingParams = GREEDY
    noise: Noise = field(default_factory=lambda: Noise(7))
    round_idx: int = 0
    grammar: None = None
    cache_salt: str | None = None

    @property
    def prediction(self) -> Sequence[int]:
        """The prompt again, as when an edited file comes back."""
        return self.prompt

    @property
    def tokens(self) -> Sequence[int]:
        return (*self.prompt, *self.output)

    def after(self, verdict: Verdict) -> View:
        return replace(self, output=(*self.output, *verdict.tokens), round_idx=self.round_idx + 1)


def draft_model(vocab_size: int) -> DraftModel:
    config = tiny_config(vocab_size=vocab_size, num_layers=1, max_len=64)
    model = LlamaModel.load(TinyCheckpoint(config, 3), ReferenceKernels())
    drafter = DraftModel(model, vocab_size)
    drafter.allocate(64, 4)
    return drafter


class Tapping:
    """A drafter that reads hidden states, with a target that gives them as an engine does."""

    picks = False

    def __init__(self, drafter: TappedDrafter, target: LlamaModel) -> None:
        self.drafter = self._drafter = drafter
        self._target = target
        self._num_told: dict[int, int] = {}

    @property
    def num_requests(self) -> int:
        return self._drafter.num_requests

    def begin(self, request: RequestView) -> None:
        self._drafter.begin(request)
        self._num_told[request.id] = 0
        self._tell(request)

    def _tell(self, request: RequestView) -> None:
        """Give the hidden states of all tokens but the last, which the target has not run."""
        start, tokens = self._num_told[request.id], tuple(request.tokens[:-1])
        if len(tokens) > start:
            cache = self._target.new_cache(32, 4)
            table, taps = cache.new_table(), Taps(self._drafter.layers)
            span = Span.all_wanted(table.reserve(len(tokens)), tokens)
            self._target.forward(Plan.build([(span, table)]), cache, taps)
            rows = {layer: found[start:] for layer, found in taps.rows.items()}
            self._drafter.tapped(request, start, rows)
            self._num_told[request.id] = len(tokens)

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        return self._drafter.propose(requests, budgets)

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        self._tell(request)
        self._drafter.commit(request, verdict)

    def end(self, request: RequestView) -> None:
        self._drafter.end(request)


@cache
def head_folder(kind: str, vocab_size: int) -> HeadFolder:
    config = head_target(vocab_size).config
    folder = Path(mkdtemp()) / kind
    write_head(folder, CONFIGS[kind](config, draft_vocab_size=vocab_size))
    return HeadFolder(folder, kind)


def phrases(vocab_size: int) -> Phrases:
    """A drafter over a book of random texts, and of one text that is frequent."""
    rng, owner = np.random.default_rng(2), replace(OWNER, vocab_size=vocab_size)
    texts = [*rng.integers(0, vocab_size, (40, 20)).tolist(), *[CONTEXTS["a text"]] * 40]
    return Phrases(book_of(*texts, owner=owner))


@cache
def head_target(vocab_size: int, kernel_set: str = "reference") -> LlamaModel:
    config = tiny_config(vocab_size=vocab_size, num_layers=2, max_len=64)
    return LlamaModel.load(TinyCheckpoint(config, 5), KERNEL_SETS[kernel_set]().kernels)


def head(kind: str, vocab_size: int, kernel_set: str = "reference") -> Any:
    target = head_target(vocab_size, kernel_set)
    drafter = build_head(head_folder(kind, vocab_size), target)
    if isinstance(drafter, CachedDrafter):
        drafter.allocate(64, 4)
    return Tapping(drafter, target) if isinstance(drafter, TappedDrafter) else drafter


IN_ONE_PASS = ("block", "eagle3", "mtp")
DRAFTERS: dict[str, Callable[[int], Drafter]] = {
    "prompt_lookup": lambda _: PromptLookup(1, 3),
    "ngram_tables": lambda v: NgramTables(v),
    "ngram_window": lambda v: NgramTables(v, (1, 3), window=5),
    "unigram": lambda v: NgramTables(v, (1,)),
    "bigram": lambda v: NgramTables(v, (2,)),
    "random": RandomTokens,
    "suffix": lambda _: SuffixLookup(min_chance=0.0),
    "suffix_short": lambda _: SuffixLookup(max_match=2, min_chance=0.0, max_shared_tokens=0),
    "prediction": lambda _: GivenPrediction(min_chance=0.0),
    "phrases": phrases,
    "draft_model": draft_model,
    **{kind: partial(head, kind) for kind in HEAD_KINDS},
    **{f"{kind}_in_one_pass": partial(head, kind, kernel_set="cpu-1") for kind in IN_ONE_PASS},
    "hybrid": lambda v: Hybrid([PromptLookup(2, 3), NgramTables(v, (2,)), draft_model(v)]),
    "merge": lambda v: Merge([NgramTables(v, (2,)), PromptLookup(1, 2), draft_model(v)]),
    "merge_of_one_kind": lambda v: Merge([RandomTokens(v), RandomTokens(v)]),
}
every_drafter = pytest.mark.parametrize("name", DRAFTERS)
every_mode = pytest.mark.parametrize(
    "params", [GREEDY, COUPLED, REJECTION], ids=["greedy", "coupled", "rejection"]
)

CONTEXTS: dict[str, tuple[int, ...]] = {
    "nothing": (),
    "one token": (0,),
    "the last id": (8,),
    "all equal": (5,) * 20,
    "the edges": (0, 8) * 6,
    "a text": (1, 2, 3, 4, 1, 2, 3, 4, 1, 2),
    "no repetition": (0, 1, 2, 3, 4, 5, 6, 7, 8),
}
V = 9
HIDDEN_SIZE = tiny_config().hidden_size


def propose(drafter: Drafter, view: View, budget: Budget) -> Proposal:
    return drafter.propose([view], [budget])[0]


def num_parts(name: str) -> int:
    return {"merge": 3, "merge_of_one_kind": 2}.get(name, 1)


@every_drafter
@every_mode
def test_a_proposal_keeps_to_its_budget(name: str, params: SamplingParams) -> None:
    drafter = DRAFTERS[name](V)
    for idx, (where, context) in enumerate(CONTEXTS.items()):
        view = View(context, idx, params=params)
        drafter.begin(view)
        for budget in (Budget(1), Budget(4), Budget(3, num_branches=3)):
            proposal = propose(drafter, view, budget)
            assert proposal.depth <= budget.depth, where
            assert len(proposal.tree.children(-1)) <= budget.num_branches * num_parts(name), where
            assert len(proposal) <= budget.depth * budget.num_branches * num_parts(name), where
            assert all(0 <= token < V for token in proposal.tokens), where
            assert view.tokens == context
        drafter.end(view)


@every_drafter
def test_depth_0_is_an_empty_proposal(name: str) -> None:
    drafter, view = DRAFTERS[name](V), View(CONTEXTS["a text"])
    drafter.begin(view)
    assert len(propose(drafter, view, Budget(0))) == 0


@every_drafter
def test_it_has_something_to_say_about_a_repetitive_text(name: str) -> None:
    drafter, view = DRAFTERS[name](V), View(CONTEXTS["a text"])
    drafter.begin(view)
    assert propose(drafter, view, Budget(3)).depth == 3


@every_drafter
@every_mode
def test_trees_branch(name: str, params: SamplingParams) -> None:
    drafter = DRAFTERS[name](V)
    view = View((1, 2, 1, 3, 1, 4, 1), params=params)
    drafter.begin(view)
    found = propose(drafter, view, Budget(2, num_branches=3))
    num = len(found.tree.children(-1))
    if name.startswith("block"):  # the likeliest six, wherever they stand
        assert 1 < num <= 3
        assert len(found) == 6
    elif name == "phrases":  # knows one token after a context
        assert num <= 1
    else:
        assert num == 3 or num_parts(name) > 1


@every_drafter
@every_mode
def test_guesses_are_a_function_of_committed_history(name: str, params: SamplingParams) -> None:
    """Alone or in a batch, and from a twin that met the requests in another order: the same."""
    drafter, twin = DRAFTERS[name](V), DRAFTERS[name](V)
    view = View(CONTEXTS["a text"], id=1, params=params)
    other = View(CONTEXTS["no repetition"], id=2, params=params, noise=Noise(8))
    budget = Budget(3, num_branches=2)
    for d, order in ((drafter, (view, other)), (twin, (other, view))):
        for request in order:
            d.begin(request)
    together = drafter.propose([view, other], [budget, Budget(1)])[0]
    alone = propose(twin, view, budget)
    assert together.tokens == alone.tokens
    assert together.tree == alone.tree


@pytest.mark.parametrize("temperature", [0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("kind", IN_ONE_PASS)
def test_one_pass_guesses_what_level_by_level_comes_out(
    kind: str, temperature: float, depth: int
) -> None:
    """In a batch the head goes level by level, and the host draws from its laws."""
    drafter, twin, guessed = head(kind, V, "cpu-1"), head(kind, V, "cpu-1"), set()
    for seed in range(12):
        params = SamplingParams(temperature=temperature, seed=seed)
        tokens = tuple(int(t) for t in np.random.default_rng(seed).integers(0, V, 8))
        view, other = View(tokens, 2 * seed, (), params, Noise(seed)), View((1, 2), 2 * seed + 1)
        for request in (view, other):
            drafter.begin(request)
            twin.begin(request)
        together = twin.propose([view, other], [Budget(depth), Budget(1)])[0]
        alone = propose(drafter, view, Budget(depth))
        assert alone.tokens == together.tokens
        assert alone.depth == depth
        guessed.add(alone.tokens)
        for request in (view, other):
            drafter.end(request)
            twin.end(request)
    assert len(guessed) > 3


def test_a_block_is_guessed_by_passes_of_few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels record a pass for each size: after naps of any length, blocks have few sizes."""
    sizes, chain = list[int](), BlockHead.chain

    def noted(head: BlockHead, plan: Plan, *args: Any) -> Any:
        sizes.append(len(plan))
        return chain(head, plan, *args)

    monkeypatch.setattr(BlockHead, "chain", noted)
    drafter, depth = head("block", V, "cpu-1"), 2
    lengths = range(2, 34)
    for length in lengths:
        view = View(tuple(idx % V for idx in range(length)), length)
        drafter.begin(view)
        assert propose(drafter, view, Budget(depth)).depth == depth
        drafter.end(view)
    needed = [length - 1 + depth - 1 for length in lengths]
    assert all(size >= least for size, least in zip(sizes, needed, strict=True))
    assert len(set(sizes)) <= 10
    view = View(tuple(idx % V for idx in range(61)), 1)  # no room for more rows than it needs
    drafter.begin(view)
    assert propose(drafter, view, Budget(4)).depth == 4
    assert sizes[-1] == 63


@every_drafter
@every_mode
@pytest.mark.parametrize("num_branches", [1, 2])
def test_many_rounds_equal_a_fresh_start(
    name: str, params: SamplingParams, num_branches: int
) -> None:
    """After any verdicts, its guesses are those of a drafter that meets the text for the first
    time: nothing rejected lingers, nothing accepted is missing (D6: the last guess of a full
    accept included)."""
    rng = np.random.default_rng(0)
    drafter, view = DRAFTERS[name](V), View((1, 2, 3, 1, 2), params=params)
    drafter.begin(view)
    for _ in range(6):
        budget = Budget(int(rng.integers(0, 4)), num_branches)
        proposal = propose(drafter, view, budget)
        fresh = DRAFTERS[name](V)
        fresh.begin(view)
        expected = propose(fresh, view, budget)
        assert (proposal.tokens, proposal.tree) == (expected.tokens, expected.tree)
        verdict = _some_verdict(proposal, rng)
        view = view.after(verdict)
        drafter.commit(view, verdict)
    drafter.end(view)


def _some_verdict(proposal: Proposal, rng: np.random.Generator) -> Verdict:
    node = int(rng.integers(-1, len(proposal)))
    return Verdict.reached(proposal, node, int(rng.integers(V)))


@every_drafter
def test_a_request_may_end_at_any_time(name: str) -> None:
    drafter = DRAFTERS[name](V)
    first, second = View((1, 2, 1), id=1), View((3, 4, 3), id=2)
    drafter.end(View((1,), id=99))
    drafter.begin(first)
    drafter.begin(second)
    propose(drafter, first, Budget(2))
    drafter.end(first)
    drafter.end(first)
    assert propose(drafter, second, Budget(2)).depth <= 2
    drafter.commit(second, Verdict((), (0,), Origin.PLAIN))
    drafter.end(second)


# Slow: draws for `rejection` never come in one pass, and two of one kind have the most draws.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name.endswith(("_pass", "_kind")) else ())
        for name in DRAFTERS
    ],
)
@pytest.mark.parametrize("num_branches", [1, 2])
@pytest.mark.parametrize(
    "target_seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (4, 8))]
)
def test_declared_laws_are_the_true_ones(name: str, num_branches: int, target_seed: int) -> None:
    """By enumeration: `rejection` with this drafter emits the target's law, so the q it records
    is the law it draws from, also among siblings and merged drafters."""
    assert law_error(drafted(name, num_branches), TableModel(3, target_seed)) < 1e-9


@cache
def drafted(name: str, num_branches: int) -> Staged[Proposal]:
    """One enumeration of the drafter's draws serves every target."""
    return every_draft(DRAFTERS[name](3), (0, 1, 2, 0, 1, 1, 0), Budget(2, num_branches))


@pytest.mark.parametrize("target_seed", range(3))
def test_merged_drafters_draw_apart(target_seed: int) -> None:
    """Four siblings from two tables: a table's second draw must not depend on the other table's
    first. (Three tokens could not show it: two refusals leave one token.)"""
    drafter = Merge([NgramTables(4, (1,)), NgramTables(4, (1,))])
    drafts = every_draft(drafter, (0, 1, 2, 0, 1, 1, 0, 3), Budget(1, num_branches=2))
    assert law_error(drafts, TableModel(4, target_seed)) < 1e-9


def every_draft(drafter: Drafter, context: tuple[int, ...], budget: Budget) -> Staged[Proposal]:
    """Every proposal that this drafter can draw."""

    def draft(noise: LazyNoise) -> Proposal:
        view = View(context, params=REJECTION, noise=noise)  # type: ignore[arg-type]
        drafter.begin(view)
        proposal = propose(drafter, view, budget)
        drafter.end(view)
        return proposal

    return Staged(draft)


def law_error(drafts: Staged[Proposal], target: TableModel) -> float:
    """The largest error of the law that a round with these drafts emits, by enumeration."""

    def judge(proposal: Proposal, noise: LazyNoise) -> tuple[int, ...]:
        def probs_at(node: int) -> Probs:
            return target.probs(proposal.path_tokens(node))

        return rejection(proposal, probs_at, noise, 0).tokens

    return worst_error(drafts.law_of(judge), target)


@pytest.mark.parametrize("name", ["draft_model", "ngram_tables", "unigram", "random"])
def test_shared_noise_makes_equal_laws_agree(name: str) -> None:
    """A target with the drafter's own distribution accepts every coupled guess."""
    drafter, view = DRAFTERS[name](V), View(CONTEXTS["a text"], params=COUPLED)
    drafter.begin(view)
    proposal = propose(drafter, view, Budget(3))
    twin = DRAFTERS[name](V)
    twin.begin(view)

    def logits_at(node: int) -> np.ndarray:
        """Logits that allow only the drafter's own next guess."""
        grown = view.after(Verdict((), proposal.path_tokens(node), None))
        judge = DRAFTERS[name](V)
        judge.begin(grown)
        guess = propose(judge, replace(grown, round_idx=0), Budget(1)).tokens[0]
        return np.where(np.arange(V) == guess, 0.0, -np.inf)

    verdict = coupled(proposal, logits_at, view.noise, len(view.tokens))
    assert verdict.num_accepted == 3
