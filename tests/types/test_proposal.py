import numpy as np
import pytest

from forerun.errors import InvalidDistribution, InvalidProposal
from forerun.sampling import Noise
from forerun.types import ROOT, Draw, Origin, Proposal, ProposalBuilder, Span, Tree, Verdict
from forerun.verify import rejection

FAIR = np.array([0.5, 0.5, 0.0])


def test_chain() -> None:
    chain = Proposal.chain([2, 0])
    assert chain.tree.is_chain
    assert chain.path_tokens(1) == (2, 0)
    assert chain.path_tokens(ROOT) == ()
    assert chain.draws_below(0) == ((1, Draw(1)),)
    assert len(Proposal.empty()) == 0


def test_builder_keeps_order_and_multiplicity() -> None:
    builder = ProposalBuilder()
    a = builder.add(ROOT, 1, FAIR)
    b = builder.add(ROOT, 0, FAIR)
    again = builder.add(ROOT, 1, FAIR)
    child = builder.add(again, 0, FAIR)
    proposal = builder.build()
    assert (a, b, again, child) == (0, 1, 0, 2)
    assert [draw.node for draw in proposal.draws] == [0, 1, 0, 2]
    assert [draw.node for _, draw in proposal.draws_below(ROOT)] == [0, 1, 0]
    assert proposal.child_with_token(ROOT, 0) == 1
    assert proposal.child_with_token(0, 2) is None


@pytest.mark.parametrize(
    ("parents", "tokens", "nodes", "why"),
    [
        ((ROOT,), (1, 2), (0,), "2 tokens for a tree of 1"),
        ((ROOT, ROOT), (1, 1), (0, 1), "stands twice"),
        ((ROOT,), (-1,), (0,), "ids start at 0"),
        ((ROOT, 0), (1, 1), (0,), r"nodes \[1\] were never drawn"),
        ((ROOT,), (1,), (0, 3), "which does not exist"),
    ],
)
def test_malformed(
    parents: tuple[int, ...], tokens: tuple[int, ...], nodes: tuple[int, ...], why: str
) -> None:
    with pytest.raises(InvalidProposal, match=why):
        Proposal(Tree(parents), tokens, tuple(Draw(node) for node in nodes))


def test_a_draw_that_its_own_law_excludes() -> None:
    with pytest.raises(InvalidProposal, match="its own q gives probability 0"):
        Proposal.chain([2], [FAIR])
    with pytest.raises(InvalidProposal, match="its own q gives probability 0"):
        Proposal.chain([7], [FAIR])


@pytest.mark.parametrize(
    "law", [[0.5, 0.6], [1.5, -0.5], [np.nan, 1.0], [np.inf, 0.0], [], [[1.0]]]
)
def test_a_law_that_is_none(law: list[float]) -> None:
    with pytest.raises(InvalidDistribution):
        Proposal.chain([0], [np.array(law)])
    with pytest.raises(InvalidDistribution):
        rejection(Proposal.empty(), lambda _: np.array(law), Noise(0), 0)


def test_q_and_p_must_speak_of_the_same_vocabulary() -> None:
    with pytest.raises(InvalidProposal, match="pad q"):
        rejection(Proposal.chain([0], [FAIR]), lambda _: np.array([0.5, 0.5]), Noise(0), 0)
    with pytest.raises(InvalidProposal, match="ids end at 1"):
        rejection(Proposal.chain([2]), lambda _: np.array([0.5, 0.5]), Noise(0), 0)


def test_laws_and_tokens_come_in_pairs() -> None:
    with pytest.raises(InvalidProposal, match="2 laws for 1 tokens"):
        Proposal.chain([0], [FAIR, FAIR])


def test_verdict_counts() -> None:
    verdict = Verdict.reached(Proposal.chain([4, 5, 6]), 1, 9)
    assert verdict.tokens == (4, 5, 9)
    assert verdict.num_accepted == 2
    assert verdict.final is Origin.RECOVERED


def test_verdict_cut_short() -> None:
    verdict = Verdict.reached(Proposal.chain([4, 5]), 1, 9)
    assert verdict.first(3) == verdict
    assert verdict.first(2) == Verdict((0, 1), (4, 5), None)
    assert verdict.first(1).origins == (Origin.ACCEPTED,)


def test_spans() -> None:
    chunk = Span.prompt_chunk(5, [1, 2, 3], is_last=True)
    assert (chunk.positions, chunk.wanted, len(chunk)) == (range(5, 8), (2,), 3)
    assert Span.prompt_chunk(0, [1], is_last=False).wanted == ()
    proposal = Proposal(Tree((ROOT, ROOT, 0)), (7, 8, 9), (Draw(0), Draw(1), Draw(2)))
    span = Span.verification(10, 6, proposal)
    assert span.tokens == (6, 7, 8, 9)
    assert span.positions == [10, 11, 11, 12]
    assert span.tree.path_to(3) == (0, 1, 3)
    assert Span.verification(10, 6, Proposal.empty()).positions == range(10, 11)


def test_bad_spans() -> None:
    with pytest.raises(InvalidProposal, match="at least one token"):
        Span(0, (), Tree(()), ())
    with pytest.raises(InvalidProposal, match="outside the span"):
        Span(0, (1,), Tree.chain(1), (1,))
