import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import InvalidProposal
from forerun.types import ROOT, Tree

trees = st.integers(0, 12).flatmap(
    lambda n: st.tuples(*(st.integers(ROOT, node - 1) for node in range(n)))
)


def test_a_chain_is_a_tree_with_one_branch() -> None:
    chain = Tree.chain(3)
    assert chain.parents == (ROOT, 0, 1)
    assert chain.is_chain
    assert chain.depths == (1, 2, 3)
    assert Tree.chain(0) == Tree(())
    assert Tree(()).depth == 0


def test_two_branches() -> None:
    tree = Tree((ROOT, ROOT, 0, 1, 3))
    assert not tree.is_chain
    assert tree.children(ROOT) == (0, 1)
    assert tree.path_to(4) == (1, 3, 4)
    assert tree.path_to(ROOT) == ()
    assert tree.depth == 3


@given(trees)
def test_paths_depths_and_children_agree(parents: tuple[int, ...]) -> None:
    tree = Tree(parents)
    for node, parent in enumerate(parents):
        path = tree.path_to(node)
        assert len(path) == tree.depths[node]
        assert path[:-1] == tree.path_to(parent)
        assert node in tree.children(parent)
    assert sum(len(tree.children(node)) for node in range(ROOT, len(tree))) == len(tree)


@pytest.mark.parametrize("parents", [(0,), (ROOT, 1), (ROOT, 2, 0), (-2,), (ROOT, ROOT, 5)])
def test_parents_must_precede_their_children(parents: tuple[int, ...]) -> None:
    with pytest.raises(InvalidProposal, match="a parent must precede its child"):
        Tree(parents)
